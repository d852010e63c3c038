package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// authorityLifetime is how long an authority is valid: longer than most clusters live.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// issuedLifetime is how long a certificate of a node or client is valid. Nodes read a new certificate without a
	// restart.
	issuedLifetime = 365 * 24 * time.Hour
	// renewed is how long before its expiry a certificate is due for renewal.
	renewed = 30 * 24 * time.Hour
	// backdated is how far in the past a certificate becomes valid, so that a machine whose clock is behind accepts it
	// at once.
	backdated = time.Hour
)

// name matches the names that are allowed in a file name and as a common name (at most 64 characters, RFC 5280).
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Pair has the paths of a certificate and its key.
type Pair struct {
	Cert, Key string
}

// NameError is the text of the error for a name or a host that no certificate can have.
type NameError string

// Error returns the text.
func (e NameError) Error() string { return string(e) }

// pairOf returns the files of a certificate in a folder.
func pairOf(dir, base string) Pair {
	return Pair{filepath.Join(dir, base+".pem"), filepath.Join(dir, base+"-key.pem")}
}

// MakeAuthority makes a certificate authority in a folder, and makes the folder if it is missing. It fails with
// fs.ErrExist if a file exists and overwrite is not set. With overwrite, the certificates of the earlier authority
// become worthless.
func MakeAuthority(dir string, overwrite bool) (Pair, error) {
	id, err := drawSerial()
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          id,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("Signalbox CA %x", id.Bytes()[:4])},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	setValidity(template, authorityLifetime)
	return sign(template, nil, pairOf(dir, "ca"), overwrite)
}

// MakeNode issues the certificate of a node, signed by the authority in the folder. hosts are the names and addresses
// by which clients reach the node over HTTPS. MakeNode adds the loopback names and, if it is a host name, the id. It
// fails with a NameError for the id or a host, and with fs.ErrExist if a file exists and overwrite is not set.
func MakeNode(dir, id string, hosts []string, overwrite bool) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: nodeUsages,
	}
	for _, host := range append([]string{id, "localhost", "127.0.0.1", "::1"}, hosts...) {
		switch ip := net.ParseIP(host); {
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case hostName.MatchString(host):
			template.DNSNames = append(template.DNSNames, host)
		case host != id:
			return Pair{}, NameError(fmt.Sprintf("%q is neither a host name nor an IP address", host))
		}
	}
	return issue(dir, "node-"+id, template, overwrite)
}

// NodeLasts reports whether a folder has a certificate of a node that the folder's authority has issued for these hosts
// and that is valid for another 30 days.
func NodeLasts(dir, id string, hosts []string) bool {
	s, err := Open(Config{Pair: pairOf(dir, "node-"+id), CA: pairOf(dir, "ca").Cert, Node: id})
	if err != nil || time.Until(s.Ends()) < renewed {
		return false
	}
	return !slices.ContainsFunc(hosts, func(host string) bool { return s.Certificate().Leaf.VerifyHostname(host) != nil })
}

// CopyNode copies the files that a node needs to another folder: its certificate and key as base.pem and base-key.pem,
// and the authority's certificate. It does not copy the authority's key.
func CopyNode(from, to, id, base string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	node, copied := pairOf(from, "node-"+id), pairOf(to, base)
	for _, file := range [][2]string{{pairOf(from, "ca").Cert, pairOf(to, "ca").Cert}, {node.Key, copied.Key}, {node.Cert, copied.Cert}} {
		content, err := os.ReadFile(file[0])
		if err != nil {
			return err
		}
		if err := replace(file[1], content); err != nil {
			return err
		}
	}
	return nil
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// MakeClient issues the certificate of a client, signed by the authority in the folder. It fails with a NameError for
// the name, and with fs.ErrExist if a file exists and overwrite is not set.
func MakeClient(dir, client string, overwrite bool) (Pair, error) {
	return issue(dir, "client-"+client, &x509.Certificate{
		Subject:     pkix.Name{CommonName: client},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, overwrite)
}

// issue makes the folder's authority sign a certificate, which ends no later than the authority's own certificate.
func issue(dir, base string, template *x509.Certificate, overwrite bool) (Pair, error) {
	if id := template.Subject.CommonName; !name.MatchString(id) || strings.HasSuffix(id, "-key") {
		return Pair{}, NameError(fmt.Sprintf("%q can't be the name in a certificate: 1 to 64 of letters, digits, '.', '_' and '-', with a letter or digit first, and not -key at the end", id))
	}
	files := pairOf(dir, "ca")
	authority, err := readPair(files)
	if errors.Is(err, fs.ErrNotExist) {
		return Pair{}, fmt.Errorf("there is no certificate authority in %s: %w", dir, err)
	}
	if err != nil {
		return Pair{}, err
	}
	if !authority.Leaf.IsCA {
		return Pair{}, fmt.Errorf("%s is not the certificate of an authority", files.Cert)
	}
	if template.SerialNumber, err = drawSerial(); err != nil {
		return Pair{}, err
	}
	setValidity(template, issuedLifetime)
	if template.NotAfter.After(authority.Leaf.NotAfter) {
		template.NotAfter = authority.Leaf.NotAfter
	}
	if !template.NotAfter.After(time.Now()) {
		return Pair{}, fmt.Errorf("%s has ended on %s", files.Cert, authority.Leaf.NotAfter.Format(time.DateOnly))
	}
	return sign(template, &authority, pairOf(dir, base), overwrite)
}

// setValidity sets the time in which a certificate is valid.
func setValidity(template *x509.Certificate, lifetime time.Duration) {
	template.NotBefore = time.Now().Add(-backdated)
	template.NotAfter = time.Now().Add(lifetime)
}

// sign draws a key, makes the authority sign a certificate for it, and writes both. If authority is nil the certificate
// is self-signed.
func sign(template *x509.Certificate, authority *tls.Certificate, files Pair, overwrite bool) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return files, writePair(files, cert, encoded, overwrite)
}

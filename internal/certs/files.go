package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
)

// drawSerial draws the serial number of a certificate: positive, of 127 bits.
func drawSerial() (*big.Int, error) {
	var drawn [16]byte
	if _, err := rand.Read(drawn[:]); err != nil {
		return nil, err
	}
	drawn[0] = drawn[0]&0x7f | 0x40
	return new(big.Int).SetBytes(drawn[:]), nil
}

// writePair writes a certificate and its key, both in DER, as PEM files. Without overwrite it fails with fs.ErrExist if
// one of the files exists, and changes no file.
func writePair(files Pair, cert, key []byte, overwrite bool) error {
	if err := os.MkdirAll(filepath.Dir(files.Cert), 0o700); err != nil {
		return err
	}
	if !overwrite {
		for _, path := range []string{files.Cert, files.Key} {
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s is there already: %w", path, fs.ErrExist)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	// Both files are on the disk before we rename them. A node that reads between the two renames finds a certificate
	// and a key that do not match, and reads again.
	newKey, err := writeBeside(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	if err != nil {
		return err
	}
	defer os.Remove(newKey) // no longer there, unless a step failed
	newCert, err := writeBeside(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	if err != nil {
		return err
	}
	defer os.Remove(newCert)
	if err := os.Rename(newKey, files.Key); err != nil {
		return err
	}
	return os.Rename(newCert, files.Cert)
}

// writeBeside writes the content to a new file in the folder of path, and returns the new path.
func writeBeside(path string, content []byte) (string, error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*") // its mode is 0600
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(file.Name()) // the error before it is returned
	}
	return file.Name(), err
}

// replace writes a file completely, and only then puts it in the place of an existing file.
func replace(path string, content []byte) error {
	written, err := writeBeside(path, content)
	if err != nil {
		return err
	}
	defer os.Remove(written) // no longer there, unless a step failed
	return os.Rename(written, path)
}

// readPair reads a certificate, with the intermediate certificates in its file, and its key.
func readPair(files Pair) (tls.Certificate, error) {
	cert, err := os.ReadFile(files.Cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := os.ReadFile(files.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return parsePair(files, cert, key)
}

func parsePair(files Pair, cert, key []byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(bytes.TrimSpace(cert), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s with %s: %w", files.Cert, files.Key, err)
	}
	if pair.Leaf == nil { // GODEBUG=x509keypairleaf=0 leaves it out
		pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0])
	}
	return pair, err
}

// parseBundle reads the certificates of authorities, and ignores other text between them. It fails if one of them is
// damaged: a node that trusted only a part of a truncated bundle could lose its connections to half of the nodes.
func parseBundle(path string, bundle []byte) (*x509.CertPool, error) {
	roots, found := x509.NewCertPool(), 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		found++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", path, found, err)
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("%s: certificate %d is not that of an authority", path, found)
		}
		roots.AddCert(cert)
	}
	if begun := bytes.Count(bundle, []byte("-----BEGIN ")); found == 0 || found != begun {
		return nil, fmt.Errorf("%s: %d of %d certificates are whole", path, found, begun)
	}
	return roots, nil
}

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// ServerTLS returns the settings of TLS for a server that clients of all kinds call:
// version 1.2 or 1.3, since programs with an older TLS library must get in unchanged, with
// the ciphers that Go prefers.
//
// Without Config.CA no client is asked for a certificate. With it a client may show one,
// which must be a client's (never a node's), issued by an authority of that moment. A
// resumed connection is verified as a new one is.
func (s *Source) ServerTLS() *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.Certificate(), nil
		},
	}
	if s.config.CA != "" {
		config.ClientAuth = tls.RequestClientCert
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return verifyClient(state.PeerCertificates, s.Authorities())
		}
	}
	return config
}

// errNotAClient refuses a certificate that an authority has issued for a node or a
// server.
var errNotAClient = errors.New("the certificate is not a client's: it is not for that end of a connection alone")

// verifyClient returns why a chain of certificates is not that of a client, or nil.
func verifyClient(chain []*x509.Certificate, roots *x509.CertPool) error {
	if usages := chain[0].ExtKeyUsage; len(usages) != 1 || usages[0] != x509.ExtKeyUsageClientAuth {
		return errNotAClient
	}
	return verifyChain(chain, roots, x509.ExtKeyUsageClientAuth)
}

// verifyChain returns why no authority vouches for each of the usages of a chain's first
// certificate, or nil.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, usages ...x509.ExtKeyUsage) error {
	switch {
	case len(chain) > mostCertificates:
		return fmt.Errorf("the other side shows %d certificates, more than %d", len(chain), mostCertificates)
	case roots == nil: // would stand for the system's
		return errors.New("no authority is known")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	for _, usage := range usages { // one at a time: Verify takes any of a list for enough
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkServer returns why no client would accept the certificate from a server, or nil.
// A certificate without usages is for all of them.
func (m *material) checkServer() error {
	usages := m.pair.Leaf.ExtKeyUsage
	if len(usages) == 0 || slices.Contains(usages, x509.ExtKeyUsageServerAuth) || slices.Contains(usages, x509.ExtKeyUsageAny) {
		return nil
	}
	return errors.New("it is not a server's certificate")
}

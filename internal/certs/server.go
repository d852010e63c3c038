package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// ServerTLS returns the TLS settings of a server for clients of all kinds: versions 1.2 and 1.3, and the ciphers that
// Go prefers, so that programs with an older TLS library can connect.
//
// Without Config.CA the server asks for no client certificate. With Config.CA a client may show one: it must be for a
// client only (never a node's), and issued by one of the present authorities. A resumed connection is verified like a
// new one.
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

// errNotAClient refuses the certificate of a node or a server.
var errNotAClient = errors.New("the certificate is not a client's: it is not for that end of a connection alone")

// verifyClient returns why a chain does not belong to a client, or nil.
func verifyClient(chain []*x509.Certificate, roots *x509.CertPool) error {
	if usages := chain[0].ExtKeyUsage; len(usages) != 1 || usages[0] != x509.ExtKeyUsageClientAuth {
		return errNotAClient
	}
	return verifyChain(chain, roots, x509.ExtKeyUsageClientAuth)
}

// verifyChain returns why the authorities don't confirm one of the usages of a chain's first certificate, or nil.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, usages ...x509.ExtKeyUsage) error {
	switch {
	case len(chain) > mostCertificates:
		return fmt.Errorf("the other side shows %d certificates, more than %d", len(chain), mostCertificates)
	case roots == nil: // nil would mean the system's authorities
		return errors.New("no authority is known")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	for _, usage := range usages { // one by one, since Verify is satisfied with any usage of a list
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkServer returns why clients would not accept the certificate from a server, or nil. A certificate without usages
// may be used for all purposes.
func (m *material) checkServer() error {
	usages := m.pair.Leaf.ExtKeyUsage
	if len(usages) == 0 || slices.Contains(usages, x509.ExtKeyUsageServerAuth) || slices.Contains(usages, x509.ExtKeyUsageAny) {
		return nil
	}
	return errors.New("it is not a server's certificate")
}

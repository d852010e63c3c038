package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// nodeProtocol names the protocol between nodes in the TLS handshake (ALPN), so that no other service with such a
// certificate can stand in for a node.
const nodeProtocol = "signalbox-peer"

// mostCertificates bounds the certificates that the other side may send, since we verify them before it has proven that
// it has the key.
const mostCertificates = 5

// NodeTLS returns the settings of TLS between nodes, for both ends: version 1.3, and a certificate from each side.
// Sessions are not resumed, so that each connection is judged by the authorities at its time. Host names don't count,
// only the common name, which is the id of the node.
func (s *Source) NodeTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{nodeProtocol},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.Certificate(), nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return s.Certificate(), nil
		},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection does it, at both ends alike
		VerifyConnection:       s.verifyNode,
		SessionTicketsDisabled: true,
	}
}

// nodeUsages are the usages of a node's certificate: both ends of a connection.
var nodeUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// errNotANode refuses the certificate of a client.
var errNotANode = errors.New("the certificate is not a node's: it is not for both ends of a connection")

// verifyNode accepts the certificate of a node that one of the present authorities has issued.
func (s *Source) verifyNode(state tls.ConnectionState) error {
	if state.NegotiatedProtocol != nodeProtocol {
		return fmt.Errorf("the other side does not speak the protocol %q", nodeProtocol)
	}
	return verifyNode(state.PeerCertificates, s.Authorities())
}

// verifyNode returns why a chain does not belong to a node, or nil.
func verifyNode(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the other side shows no certificate")
	}
	for _, end := range nodeUsages {
		if !slices.Contains(chain[0].ExtKeyUsage, end) {
			return errNotANode
		}
	}
	return verifyChain(chain, roots, nodeUsages...)
}

// checkNode returns why the certificate does not belong to node id, or why the authorities of the same source don't
// accept it, or nil.
func (m *material) checkNode(id string) error {
	var chain []*x509.Certificate
	for _, der := range m.pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain = append(chain, cert)
	}
	if name := chain[0].Subject.CommonName; name != id {
		return fmt.Errorf("it is the certificate of %q, and this is node %q", name, id)
	}
	return verifyNode(chain, m.roots)
}

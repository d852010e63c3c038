// Package certs makes the certificates of a cluster, reads them again when their files
// change, and decides whom a TLS connection is with.
//
// A folder holds a certificate authority (ca.pem, ca-key.pem) and what it has issued:
// node-ID.pem with node-ID-key.pem for a node, client-NAME.pem with
// client-NAME-key.pem for a client. All are PEM files with the mode 0600, with ECDSA
// keys on P-256. A node's certificate names the node's id as its common name, and is
// good for both ends of a connection; a client's is good for the client's end only, and
// neither passes for the other. Certificates of another authority do as well if they keep
// these rules.
//
// A [Source] holds one certificate and the authorities that it trusts, as they are on
// the disk. Two authorities in one bundle let an operator replace one by the other on
// a running cluster.
//
// Package cmd/signalbox and its verbs call it. It imports no package of ours, opens no
// connection and knows no member of a cluster: cluster/peer compares the name with the
// node that the connection claims to be from. It logs no error by itself. A Source is
// safe for concurrent use.
//
//   - make.go: an authority, and the certificates that it issues.
//   - files.go: pairs of files, written whole or not at all.
//   - source.go: Source: a certificate and its authorities, read again when they change.
//   - node.go: TLS between nodes, and the name of the node at the other end.
//   - server.go: HTTPS, and the certificates of its clients.
package certs

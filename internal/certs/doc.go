// Package certs makes the certificates of a cluster, reloads them when their files change, and decides who is at the
// other end of a TLS connection.
//
// A folder holds a certificate authority (ca.pem, ca-key.pem) and the certificates that it has issued: node-ID.pem with
// node-ID-key.pem for a node, client-NAME.pem with client-NAME-key.pem for a client. All are PEM files with the mode
// 0600 and ECDSA keys on P-256. The common name of a node's certificate is the node's id. A node's certificate is valid
// for both ends of a connection, a client's for the client's end only, and neither is accepted in place of the other.
// Certificates of another authority are accepted too if they keep these rules.
//
// A [Source] holds one certificate and the authorities that it trusts, as they are on the disk. With two authorities in
// one bundle, an operator can replace one by the other on a running cluster.
//
// Package cmd/signalbox and its verbs call it. It imports no package of ours, opens no connection and does not know the
// members of a cluster: cluster/peer compares the common name with the node from which the connection claims to come.
// It logs no error. A Source is safe for concurrent use.
//
//   - make.go: an authority, and the certificates that it issues.
//   - files.go: pairs of files, written whole or not at all.
//   - source.go: Source: a certificate and its authorities, read again when they change.
//   - node.go: TLS between nodes, and the name of the node at the other end.
//   - server.go: HTTPS, and the certificates of its clients.
package certs

// Package nodes keeps the addresses of a cluster's nodes, and chooses the node to ask next:
// the last node that worked, unless it has failed since. It also makes the URL of a path
// on a node. It sends no request and starts no goroutine.
//
// It belongs to package client, which reports to it how each attempt went. A List may
// be used by any number of goroutines.
//
//   - nodes.go: addresses, the choice among them, URLs
package nodes

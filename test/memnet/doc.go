// Package memnet is a network in memory, for tests: named hosts that listen
// and dial, and faults between them.
//
// A connection behaves like TCP where tests can tell: it is a buffered,
// ordered stream with deadlines, half of it may flow while the other half does
// not, and bytes sent into a cut are held back, not lost, until the cut heals
// or the connection is reset. So a message from before a partition may arrive
// long after it, as it does in life. A direction between two hosts may have a delay,
// a bandwidth and losses.
//
// Everything blocks on channels and sync.Cond alone and keeps time with package
// time, so it works inside a testing/synctest bubble, in virtual time. It opens
// no socket and resolves no name: an address is found by its exact text.
//
// A Host satisfies the Network of package cluster/peer. Only tests import this
// package: those of the cluster's packages, of httpapi, client and internal/certs. It imports no
// package of Signalbox. All of it is safe for concurrent use.
//
//   - network.go: Network and its hosts, which listen and dial.
//   - fault.go: cuts, delays, resets and crashes.
//   - line.go: the bandwidth and the losses of a direction between two hosts.
//   - conn.go: a connection, which has two ends and two streams.
//   - stream.go: one direction of a connection: chunks, deadlines, and when they arrive.
package memnet

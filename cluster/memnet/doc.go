// Package memnet is a network in memory, for tests: named hosts that listen
// and dial, and faults between them.
//
// A connection behaves like TCP where tests can tell: it is a buffered,
// ordered stream with deadlines, half of it may flow while the other half does
// not, and what is sent into a cut is held back, not lost, until the cut heals
// or the connection is reset. So a message from before a partition may arrive
// long after it, as it does in life. A direction between two hosts may have a delay,
// a bandwidth and losses.
//
// Everything blocks on channels and sync.Cond alone and keeps time with package
// time, so it works inside a testing/synctest bubble, in virtual time. It opens
// no socket and resolves no name: an address is found by its exact text.
//
// A Host satisfies cluster.Network. Nothing outside tests imports this package,
// and it imports nothing of Signalbox. All of it is safe for concurrent use.
package memnet

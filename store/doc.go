// Package store owns a node's data folder: Raft's log, term and vote in raft-boltdb, optionally with a journal before
// the log; the snapshots in another bbolt file; the lock file; the record of format and identity; and checks that
// detect damage.
//
// # What it promises
//
// Every read returns what was written, or fails with an error that names the file. raft-boltdb and bbolt check little
// themselves, so this package adds checks:
//
//   - at Open, before bbolt maps a file: package boltcheck checks every page, and the other
//     packages check every entry, value and chunk with its checksum. bbolt would end the process
//     on a damaged file: it panics in a goroutine that it starts itself, where we can't recover;
//   - the witness (package folder), a lower bound of what was stored. A page that has lost its
//     last entries, or an older root, is well-formed, so only another file can show the loss;
//   - while running: package logs checks each entry, also in the log cache, with a checksum, and
//     package damage turns faults and panics inside bbolt into errors.
//
// Damage is final for an open Store: the first damage is reported to OnDamage, and from then on every call fails with
// that error. The other members have the node's data, so it can join again with an empty folder.
//
// # What it does not do
//
// It does not know semaphores, and makes no decision about leadership: package cluster polls Space and StuckFor for
// this. A Store runs one goroutine for a journal until Close, and each reader of a View's snapshot runs one goroutine
// until its end.
//
// # Concurrency
//
// A Store and all objects from it may be used by any number of goroutines. Close may be called during other calls,
// which then fail with damage.ErrClosed.
//
// # Where to read
//
// This package opens and closes the parts, and checks that their files belong together. It imports folder, logs and
// snapshots, which share damage but do not know each other; damage uses boltcheck. Packages cluster, cluster/offline
// and cluster/watchdog, test/clienttest and cmd/signalbox call it.
//
//   - options.go: Options
//   - store.go: Open, verify, the parts of a Store, Close
//   - view.go: Look, which reads a folder that no node has open; Replace, which replaces its content
package store

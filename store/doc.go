// Package store owns a node's data folder: the Raft log and the stable values in raft-boltdb,
// perhaps with a journal before the log, the snapshots in another bbolt file, the lock file,
// the record of format and identity, and the checks that keep damage from passing for data.
//
// # What it promises
//
// Whatever is read is what was written, or the read fails with an error that
// names the file. raft-boltdb and bbolt check very little, so these checks are
// added, from the inside out:
//
//   - at Open, before bbolt maps a file: every page of it is read and checked
//     (package boltcheck), and every entry, value and chunk with its checksum.
//     On a damaged file bbolt would end the process: it panics in a goroutine
//     that it starts itself, where we can't recover;
//   - the witness (package folder), a lower bound of what was stored: a page that
//     lost its last entries, or an older root, is well-formed, and only something
//     outside the file can show it;
//   - while running: a checksum on each entry, also in the log cache
//     (package logs), and faults and panics inside bbolt turned into errors
//     (package damage).
//
// Damage is final for an open Store: the first find is reported to OnDamage, and
// from then on everything is refused with that error. The node's data is on the
// other members; the way back is to join again with an empty folder.
//
// # What it does not do
//
// It does not know semaphores, and does not decide about leadership: cluster polls
// Space and StuckFor, and acts. A Store starts one goroutine, for a journal, until Close, and
// each reader of a View's snapshot one until its end.
//
// # Concurrency
//
// A Store and everything it hands out may be used by any number of goroutines. Close may run
// during other calls; these then fail with damage.ErrClosed.
//
// # Where to read
//
// This package opens and closes its rooms, and judges whether their files belong
// together. It imports folder, logs and snapshots, which do not know each other and
// share damage; boltcheck is below these. Packages cluster, cluster/offline and
// cluster/watchdog, test/clienttest and cmd/signalbox call it.
//
//   - options.go: Options
//   - store.go: Open, verify, the parts of a Store, Close
//   - view.go: Look, which reads a folder that no node has open; Replace, which puts other content into it
package store

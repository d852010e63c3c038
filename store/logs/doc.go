// Package logs stores Raft's log and its stable values (term and vote), in the file of
// raft-boltdb, or in memory for a node that keeps no files.
//
// An entry is durable when StoreLogs returns, and has a checksum in its Extensions from
// the moment the leader stores it; each one is checked whenever it is read, also from
// the cache. Stable values are one record with one checksum, and a vote is one write. A
// full disk fails writes until it has room; any other failed write is damage, and final.
//
// From Raft's side to the disk, a log is: checksums (checkedLog), a cache of the last
// entries, the watch over writes, and a [raft.LogStore] at the bottom: boltLog, journaledLog
// over a boltLog, or memoryLog.
//
// With a journal (package journal), each change is one synced write there, and goes to bbolt
// later: when a half of the journal is full, after a cut, after a second or two without a
// change, and at Drain. After a crash both may have some changes: the next start applies again
// the changes with higher sequence numbers than bbolt has. On a full disk entries stay in the
// journal, as long as it has room. One goroutine moves changes to bbolt, until Close.
//
// Package store calls it. It imports journal, damage and boltcheck, and touches the file
// FileName and the journal in the data folder. Its stores may be used by any number of goroutines.
//
//   - logs.go: Create, Open and Close; Witness and Reserve, what they ask of the folder
//   - log.go: checkedLog: the checksums of entries, and the watch over writes
//   - journaled.go: journaledLog: the journal, what bbolt doesn't have yet, and spans: which
//     entries there are
//   - drain.go: how changes of the journal come to bbolt
//   - bolt.go: boltLog, which knows what must be in the file
//   - stable.go: stableValues: term and vote as one record
//   - contents.go: Read and Scan, which check the closed files
//   - memory.go: memoryLog
package logs

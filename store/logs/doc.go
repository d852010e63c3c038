// Package logs stores Raft's log and its stable values (term and vote), in the file of raft-boltdb, or in memory for a
// node without files.
//
// An entry is durable when StoreLogs returns. It has a checksum in its Extensions from the moment when the leader
// stores it, and every read checks this checksum, also a read from the cache. The stable values are one record with one
// checksum, and a vote is one write. On a full disk, writes fail until there is room. Any other failed write counts as
// damage, which is final.
//
// From Raft down to the disk, a log has these layers: checksums (checkedLog), a cache of the last entries, the
// measuring of writes (watchedLog), and a [raft.LogStore]: boltLog, or journaledLog over a boltLog, or memoryLog.
//
// With a journal (package journal), each change is one synced write to the journal, and is copied to bbolt later: when
// a half of the journal is full, after entries were removed, after a second or two without a change, and at Drain.
// After a crash bbolt may have a part of these changes. bbolt stores the sequence of the last change that was copied,
// and the next start applies the later changes of the journal again. On a full disk, entries stay in the journal, as
// long as it has room. One goroutine copies changes to bbolt, until Close.
//
// Package store calls it. It imports journal, damage and boltcheck, and touches the file FileName and the journal in
// the data folder. Its stores may be used by any number of goroutines.
//
//   - logs.go: Create, Open and Close; Witness and Reserve, what the package needs from the folder
//   - log.go: checkedLog: the checksums of entries; watchedLog: how long writes take
//   - journaled.go: journaledLog: the journal, and the changes that bbolt doesn't have yet; spans: which
//     entries there are
//   - drain.go: how changes are copied from the journal to bbolt
//   - bolt.go: boltLog, which knows what must be in the file
//   - stable.go: stableValues: term and vote as one record
//   - contents.go: Read and Scan, which check the closed files
//   - memory.go: memoryLog
package logs

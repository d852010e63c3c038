// Package journal makes changes of a log durable with one synced write each, in a separate
// file, before they go to a slower place in large portions.
//
// The file has two halves of a fixed size, which are written in turn. It is filled with zeros
// when it is made, so that no append allocates, changes metadata or meets a full disk, unless
// the file system copies on write. A record is one change: entries, a cut, or no entry, in
// place of a record that failed. When Append returns nil the record is on the disk. A half is
// written again once all of its records are drained: the caller reports their sequence number
// by Drained, and gives it to Read and Open at the next start.
//
// Read distinguishes a record that a crash has torn, which ends the journal, from damage. Each
// record has checksums, the generation of its half, and the check of the record before it. A
// bad record was torn only if it is the last record: no record of this or a later generation
// begins behind it, or in the other half. So a torn record costs at most the newest change, and
// the caller's own bounds show whether that change was acknowledged. Content of entries can't
// pass for a later record, since checks begin with a random number of the file. For the same
// reason we need not erase the bytes behind a torn record: the next record is written over its
// head, and the rest has no head.
//
// The form of the file is fixed: TestFormIsForEver compares it with testdata/journal-1, and another
// form needs another fileVersion.
//
// How far changes are drained is not in the file: the caller keeps that number. All changes after
// it, applied again in their order, lead to the same log even if some of them have been
// applied already, since the last change of an index counts.
//
// Package store/logs calls it. It imports no package of the project, starts no goroutine, and
// touches the file FileName. A Journal is for one goroutine at a time, but for Drained.
//
//   - file.go: Create and OpenFile: the file, its head, where its halves are
//   - sync_linux.go: the flag of a file whose writes are synced
//   - sync_other.go: no such flag
//   - journal.go: Open and Append: the halves in turn, and the form of a record
//   - read.go: Read: all records that count, or the damage
package journal

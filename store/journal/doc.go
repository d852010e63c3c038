// Package journal is a write-ahead file for changes of a log: it makes each change durable with one synced write,
// before the changes go to a slower store in large portions.
//
// The file has two halves of a fixed size, which are written in turn. It is filled with zeros when it is made. So an
// append allocates no blocks, changes no metadata and meets no full disk, unless the file system copies on write. A
// record is one change: entries, a removal of entries (a cut), or an empty change in place of a record that failed.
// When Append returns nil, the record is on the disk. A half is written again once all its records are drained, that
// is, stored elsewhere. The caller reports the sequence number of the last drained record with Drained, stores that
// number itself, and passes it to Read and Open at the next start.
//
// Read distinguishes a record that a crash has torn, which ends the journal, from damage. Each record has checksums,
// the generation of its half, and the check value of the record before it. A bad record counts as torn only if it was
// the last: no record of the same or a later generation begins after it, or in the other half. So a torn record costs
// at most the newest change, and the caller's own bounds show whether that change was acknowledged. Bytes inside an
// entry can't be mistaken for a record, because check values depend on a random number of the file. The bytes after a
// torn record need not be erased: the next record overwrites its head, and without a head they are no record.
//
// The form of the file is fixed: TestFormIsForEver compares it with testdata/journal-1, and another form needs another
// fileVersion.
//
// Changes may be drained twice after a crash. That is harmless: if all changes after the caller's number are applied
// again in their order, the log is the same, since the last change of an index counts.
//
// Package store/logs calls it. It imports no package of the project, starts no goroutine, and touches the file
// FileName. Only one goroutine at a time may use a Journal; Drained may be called from any goroutine.
//
//   - file.go: Create and OpenFile: the file, its head, where its halves are
//   - sync_linux.go: the flag of a file whose writes are synced
//   - sync_other.go: the same for systems without this flag
//   - journal.go: Open and Append: how records are written, and their form
//   - read.go: Read: all valid records that are not drained, or the damage
package journal

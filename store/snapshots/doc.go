// Package snapshots stores Raft's snapshots in a separate bbolt file, as chunks with checksums,
// and in memory for a node that keeps no files.
//
// A snapshot is listed exactly when all of it is durable. The newest two are kept; a snapshot
// that is read stays until its reader is closed. The next Tidy or Create removes what a crash
// left of an unfinished snapshot. Each byte is checked when the file is opened and when it is
// read. Package store accepts damage to the newest snapshot if the log makes up for it.
//
// Package store calls it. It imports damage and boltcheck, and touches the file FileName in the
// data folder. A Store and its readers and sinks may be used by any number of goroutines, but a
// reader by one goroutine at a time.
//
//   - store.go: Store: create, list, open, publish, sweep
//   - sink.go: how a snapshot is written
//   - reader.go: how it is read
//   - codec.go: the stored form of records and chunks
//   - contents.go: Read, which checks the closed file, and Copy, which reads from it
//   - memory.go: Memory
package snapshots

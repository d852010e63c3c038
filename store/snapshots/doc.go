// Package snapshots stores Raft's snapshots in a separate bbolt file, as chunks with checksums, or in memory for a node
// without files.
//
// A snapshot is listed only when it is completely durable. The store keeps the newest two snapshots, and each snapshot
// that has an open reader. The next Tidy or Create removes unfinished snapshots that a crash has left. Each byte is
// checked when the file is opened and again when it is read. Package store accepts a damaged newest snapshot if the log
// has the same entries.
//
// Package store calls it. It imports damage and boltcheck, and touches the file FileName in the data folder. A Store,
// its readers and its sinks may be used by any number of goroutines, except that only one goroutine at a time may use a
// reader.
//
//   - store.go: Store: create, list, open, publish, sweep
//   - sink.go: how a snapshot is written
//   - reader.go: how a snapshot is read
//   - codec.go: the stored form of records and chunks
//   - contents.go: Read, which checks the closed file, and Copy, which reads a snapshot from it
//   - memory.go: Memory
package snapshots

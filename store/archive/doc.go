// Package archive defines the file format of a backup: the state of a cluster at one index, in one stream that can be
// checked without any other file and without a network.
//
// # What it promises
//
//   - A [Reader] returns io.EOF only if it has read exactly the bytes that were written. It
//     verifies each chunk before it returns the bytes of the chunk.
//   - A stream that is damaged, cut short, of a later format, or not a backup gives a
//     different error in each case: [ErrDamaged], [ErrCut], [ErrNewer], [ErrNoBackup].
//   - [Save] leaves a complete and verified file, or no file.
//   - Memory is bounded by one chunk, whatever the stream says.
//   - Equal headers and equal states give equal bytes.
//
// Every format stays readable: testdata has a golden file of each.
//
// # The format
//
// All numbers are big-endian; checksums are CRC32C.
//
//	magic "SBBACKUP" | format version, 1 byte
//	header:  length, 4 bytes | header | checksum of everything before it
//	chunks:  length, 4 bytes, not 0 | checksum of the chunk's number, 8 bytes, and its bytes | bytes
//	end:     length 0, 4 bytes | bytes of all chunks, 8 bytes | SHA-256 of everything before it
//
// The header of version 1 has six fields of 8 bytes: index, term, cluster time in ms, wall time in ms since 1970,
// feature level, and flags, which are 0. The cluster's id follows, 16 bytes.
//
// # What it does not do
//
// Package fsm writes, reads and checks the state that the chunks carry. Package cluster/backup writes and restores
// backups; cluster/offline and cmd/signalbox/verbs read them. archive imports no package of the project. Only one
// goroutine at a time may use a Writer or a Reader.
//
//   - format.go: Header, the errors, and the stored form of the parts
//   - writer.go: Writer
//   - reader.go: Reader
//   - file.go: Save and Verify, for backups in files
package archive

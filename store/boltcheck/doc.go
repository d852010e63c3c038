// Package boltcheck reads a closed bbolt file with plain reads, and checks everything
// about its structure that bbolt takes on trust. Once a file has passed, bbolt finds no
// page in it that it would panic on.
//
// bbolt itself can't check it. It maps the file, and panics on a damaged file; at open it also
// starts a goroutine that finds the free pages, and a panic there ends the process. Tx.Check
// needs an open file.
//
// The format is bbolt's version 2, which has not changed since 2014; it is in the byte
// order of the machine, like bbolt's own. The package knows no keys and no checksums of
// values: package damage calls Walk for packages logs and snapshots, whose visit functions
// check both. It imports the standard library only, and keeps no state between calls of Walk.
//
//   - file.go: Walk, the meta pages, which page is used once
//   - page.go: branches, leaves, and buckets stored inside a value
package boltcheck

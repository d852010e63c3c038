// Package boltcheck reads a closed bbolt file with plain reads, and checks its whole structure, which bbolt itself does
// not check. After the check, bbolt finds no page in the file on which it would panic.
//
// We can't leave the check to bbolt, because it maps the file and panics if the file is damaged. When it opens a file
// it starts a goroutine that looks for free pages, and a panic there ends the process. Its own check, Tx.Check, needs
// an open file.
//
// The format is bbolt's version 2, which has not changed since 2014, in the byte order of the machine. The package does
// not know the meaning of keys and values: package damage calls Walk for packages logs and snapshots, whose visit
// functions check both. It imports only the standard library, and keeps no state between calls of Walk.
//
//   - file.go: Walk, the meta pages, and that each page is used only once
//   - page.go: branches, leaves, and buckets stored inside a value
package boltcheck

// Package damage keeps the other packages of the store from using damaged files. Its errors mean that a file is
// damaged, or that the disk is full. Its Guard runs their calls into bbolt.
//
// The first damage is final: after it, a Guard refuses everything. The package imports boltcheck and internal/wake. It
// writes only when it opens a bbolt file: then it writes the meta pages again, synced.
//
//   - errors.go: Error for damage, FullError for a full disk
//   - bolt.go: bbolt files: their options, Walk, which checks a file before it is opened, and
//     Guard, which turns faults and panics of bbolt into errors
package damage

// Package damage keeps the other packages of the store from using damaged files. They share it:
// its errors say that a file is damaged, or that the disk has no room, and its Guard runs their
// calls into bbolt.
//
// The first damage is final: a Guard that has found it refuses everything from then on.
// The package imports boltcheck and internal/wake. It writes no content of a file, but each
// open of a bbolt file writes its meta pages again, synced.
//
//   - errors.go: Error for damage, FullError for a full disk
//   - bolt.go: a file of bbolt: its options, Walk, which checks it before it is opened, and
//     Guard, which turns faults and panics of bbolt into errors and remembers them
package damage

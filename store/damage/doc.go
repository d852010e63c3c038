// Package damage keeps damaged files from being believed. The rooms of package store
// share it: its errors say that a file is damaged, or that the disk has no room, and
// its Guard stands between them and bbolt.
//
// The first damage is final: a Guard that has found it refuses everything from then on.
// The package imports boltcheck and internal/wake; it reads files and does not write.
//
//   - errors.go: Error for damage, FullError for a full disk
//   - bolt.go: a file of bbolt: its options, Walk, which checks it before it is opened, and
//     Guard, which turns faults and panics of bbolt into errors and remembers them
package damage

// Package storetest has what the tests of package store and its rooms share: entries and
// snapshots to store, and damage to files, as disks, crashes and copies do it.
//
//   - entries.go: entries and snapshots to store, what is read back, the errors
//   - damage.go: folders, random content, and many ways to damage a file
package storetest

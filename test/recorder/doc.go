// Package recorder shows a folder as a loss of power may leave it. It stands in the place of
// package os in a build of package store and bbolt that a test makes, does all that os does
// there, and records each change of a folder: which bytes were written, truncated and synced,
// and which names were made, changed, removed and synced, in their order.
//
// Of a record, Crash chooses what is on the disk when the power fails at some moment:
//
//   - of a file, what was synced last, and of each sector of 512 bytes that was written since,
//     any of its contents; its size likewise. A sector is whole, and a write through a file
//     opened with O_DSYNC is synced with it;
//   - of a folder, all names that were synced, and any of the changes since. A rename takes
//     place as a whole or not at all, and needs a sync of both folders;
//   - of the call under way when the power fails, anything that it may have done.
//
// A file system that keeps more, or keeps it in order, is covered too. A disk that loses what it
// said was synced, or changes other sectors than those written, is not: that is damage.
// KillAt ends the program instead: its writes stay in the page cache, synced or not.
//
// It has no other function of os than the two use, so that a build fails when they
// begin to use another one. It imports nothing of the project. One Record is made at a time.
//
//   - os.go: the functions and the File of package os
//   - record.go: Record: what was done, and the end of a program
//   - disk.go: Crash: what is on the disk then
//   - image.go: Image: the content of a folder
package recorder

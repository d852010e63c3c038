//go:build unix

package main

import "syscall"

// openFilesLimit returns how many files and connections this process may have open; ok is false if it is not known.
func openFilesLimit() (files uint64, ok bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return uint64(limit.Cur), true
}

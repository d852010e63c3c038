//go:build unix

package main

import "syscall"

// openFiles returns how many files and connections this process may have open. ok is false if the limit is not known.
func openFiles() (files uint64, ok bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return uint64(limit.Cur), true
}

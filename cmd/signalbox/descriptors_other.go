//go:build !unix

package main

// openFilesLimit returns ok = false: this system has no limit of open files.
func openFilesLimit() (files uint64, ok bool) { return 0, false }

//go:build !linux

package main

import "syscall"

// dieWithParent does nothing: only Linux can do it.
func dieWithParent(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: only Linux can do it.
func adoptOrphans() {}

// keepGoing does nothing: only Linux can do it.
func keepGoing(int) (stop func()) { return func() {} }

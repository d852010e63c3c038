//go:build !linux

package hold

import "syscall"

// dieWithParent has no effect: only Linux can do it.
func dieWithParent(*syscall.SysProcAttr) {}

// adoptOrphans has no effect: only Linux can do it.
func adoptOrphans() {}

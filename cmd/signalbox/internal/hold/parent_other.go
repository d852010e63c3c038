//go:build !linux

package hold

import "syscall"

// dieWithParent has no effect on this system.
func dieWithParent(*syscall.SysProcAttr) {}

// adoptOrphans has no effect on this system.
func adoptOrphans() {}

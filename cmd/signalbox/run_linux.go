package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the command when this process is killed: no
// one would watch over it any more.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of what the command leaves behind, so
// that it can tell when that has ended, also where nobody else waits for it.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it the parent is init, which is as well
}

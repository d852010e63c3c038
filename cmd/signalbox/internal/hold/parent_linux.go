package hold

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the command when this process is killed. Processes that the command
// started live on.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of processes that outlive the command, so that it can wait for
// them, also where no init process does.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it init is the parent, which mostly serves as well
}

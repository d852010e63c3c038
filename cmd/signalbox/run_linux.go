package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the command when this process is killed: no
// one would watch over it any more. What the command has started lives on.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of what the command leaves behind, so
// that it can tell when that has ended, also where nobody else waits for it.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it the parent is init, which is as well
}

// keepGoing continues a command that is stopped, as by Ctrl-Z, for as long as it
// runs: it would hold its permits for nothing, and nobody's shell knows of it.
func keepGoing(pid int) (stop func()) {
	changes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGCHLD)
	go func() {
		defer close(done)
		for range changes {
			var stopped unix.Siginfo
			err := unix.Waitid(unix.P_PID, pid, &stopped, unix.WSTOPPED|unix.WNOHANG, nil)
			if err == nil && stopped.Signo != 0 { // it has not ended
				_ = syscall.Kill(-pid, syscall.SIGCONT)
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		close(changes)
		<-done
	}
}

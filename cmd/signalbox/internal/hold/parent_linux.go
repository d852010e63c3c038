package hold

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the command when this process is killed, and
// can't guard it any more. Processes that the command started live on.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of processes that outlive the command,
// so that it can wait for them, also where no init process does.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it init is the parent, which mostly serves as well
}

// keepGoing continues the command whenever it is stopped, as by Ctrl-Z: it would hold
// its permits without working, and no shell knows of it to continue it.
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

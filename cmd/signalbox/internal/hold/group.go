package hold

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/exit"
)

// group is a running command in a process group of its own. It has this process's
// standard streams.
type group struct {
	process *os.Process
	ended   chan struct{}
	state   *os.ProcessState // read after ended
}

// startGroup starts a command.
func startGroup(command, environment []string) (child, error) {
	adoptOrphans()
	g := &group{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For ever: to the kernel, a parent's death is that of the thread that started
		// the child.
		runtime.LockOSThread()
		c := exec.Command(command[0], command[1:]...)
		c.Env = environment
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		dieWithParent(c.SysProcAttr)
		takeBack := lendTerminal(c.SysProcAttr)
		err := c.Start()
		g.process = c.Process
		started <- err
		if err != nil {
			takeBack()
			return
		}
		awake := keepGoing(c.Process.Pid)
		_ = c.Wait() // the state has the outcome
		awake()
		takeBack()
		g.state = c.ProcessState
		close(g.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return g, nil
}

func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.process.Pid, s) // ESRCH: all of it has ended just now
}

func (g *group) exited() <-chan struct{} { return g.ended }

func (g *group) gone() bool {
	select {
	case <-g.ended:
	default:
		return false
	}
	// Orphans of the group may be ours by now; a dead one counts as living until its
	// parent has waited for it.
	for {
		pid, err := syscall.Wait4(-g.process.Pid, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return errors.Is(syscall.Kill(-g.process.Pid, 0), syscall.ESRCH)
}

func (g *group) status() int {
	select {
	case <-g.ended:
	default:
		return exit.StatusSignal + int(syscall.SIGKILL) // it hangs in the kernel, and was sent one
	}
	if w, is := g.state.Sys().(syscall.WaitStatus); is && w.Signaled() {
		return exit.StatusSignal + int(w.Signal())
	}
	return g.state.ExitCode()
}

// lendTerminal moves the command's group to the terminal's foreground, if this
// process is there: only the group in the foreground may read, and gets Ctrl-C.
func lendTerminal(a *syscall.SysProcAttr) (takeBack func()) {
	terminal := int(os.Stdin.Fd())
	own, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	if err != nil || own != unix.Getpgrp() {
		return func() {} // no terminal, or another group is in its foreground
	}
	signal.Ignore(syscall.SIGTTOU) // it would stop this process when it takes the terminal back
	a.Foreground, a.Ctty = true, terminal
	return func() { _ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, own) }
}

// stayAwake keeps Ctrl-Z from stopping this process, which has to renew.
func stayAwake() (stop func()) {
	unheard := make(chan os.Signal, 1) // not ignored, since the command would inherit that
	signal.Notify(unheard, syscall.SIGTSTP, syscall.SIGTTIN)
	return func() { signal.Stop(unheard) }
}

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
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
		// For ever, since a parent's death is that of the thread which started the child.
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
		_ = c.Wait() // the state tells it all
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
	// Orphans of the group may be ours by now; a dead one that nobody waits for would
	// count as living.
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
		return statusSignal + int(syscall.SIGKILL) // it hangs in the kernel, and has been sent one
	}
	if w, is := g.state.Sys().(syscall.WaitStatus); is && w.Signaled() {
		return statusSignal + int(w.Signal())
	}
	return g.state.ExitCode()
}

//go:build unix

package hold

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// group is a running command in a separate process group, with this process's standard streams.
type group struct {
	pid     int
	ended   chan struct{}
	outcome syscall.WaitStatus // read after ended
}

// startGroup starts a command, and waits for every process that ends as a child of this process: as process 1,
// or as the parent of the command's orphans, no other process can.
func startGroup(command, environment []string) (child, error) {
	adoptOrphans()
	g := &group{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For ever: to the kernel, a parent's death is the death of the thread that started
		// the child.
		runtime.LockOSThread()
		attributes := &syscall.SysProcAttr{Setpgid: true}
		dieWithParent(attributes)
		takeBack := lendTerminal(attributes)
		err := g.start(command, environment, attributes)
		signal.Ignore(syscall.SIGTTOU) // after the start, since the command would inherit it: it would stop this process in the background
		if err != nil {
			takeBack()
		}
		started <- err
		if err == nil {
			g.reap(takeBack)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return g, nil
}

// start starts the command: a script without #! by the shell, as a shell does.
func (g *group) start(command, environment []string, attributes *syscall.SysProcAttr) error {
	c := exec.Command(command[0], command[1:]...)
	c.Env = environment
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = attributes
	err := c.Start()
	if errors.Is(err, syscall.ENOEXEC) && isText(c.Path) {
		script := exec.Command("/bin/sh", append([]string{"--", c.Path}, command[1:]...)...)
		script.Env, script.Stdin, script.Stdout, script.Stderr, script.SysProcAttr = c.Env, c.Stdin, c.Stdout, c.Stderr, c.SysProcAttr
		c, err = script, script.Start()
	}
	if err == nil {
		g.pid = c.Process.Pid
	}
	return err
}

// isText reports whether a file begins without a NUL, which shells take for a sign of another machine's program.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 128)
	n, _ := io.ReadFull(file, head) // a short or empty script
	return !bytes.Contains(head[:n], []byte{0})
}

// reap waits for the end of each child of this process, and calls ended when the command has ended. It
// continues the command whenever it is stopped, as by Ctrl-Z: the command would hold its permits without
// working, and no shell would continue it.
func (g *group) reap(ended func()) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case pid != g.pid: // an orphan
		case status.Stopped():
			g.signal(syscall.SIGCONT)
		default:
			ended()
			g.outcome = status
			close(g.ended)
		}
	}
}

func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.pid, s) // ESRCH: all of it has ended just now
}

func (g *group) exited() <-chan struct{} { return g.ended }

func (g *group) gone() bool {
	select {
	case <-g.ended:
	default:
		return false
	}
	return errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH)
}

func (g *group) status() int {
	select {
	case <-g.ended:
	default:
		return cli.StatusSignal + int(syscall.SIGKILL) // it hangs in the kernel, and was sent one
	}
	if g.outcome.Signaled() {
		return cli.StatusSignal + int(g.outcome.Signal())
	}
	return g.outcome.ExitStatus()
}

// lendTerminal moves the command's group to the terminal's foreground, if this process is there: only the group
// in the foreground may read, and gets Ctrl-C.
func lendTerminal(a *syscall.SysProcAttr) (takeBack func()) {
	terminal := int(os.Stdin.Fd())
	foreground, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return func() {} // no terminal, or another group is in its foreground
	}
	a.Foreground, a.Ctty = true, terminal
	return func() { _ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, foreground) }
}

// stayAwake keeps Ctrl-Z from stopping this process, which has to renew.
func stayAwake() (stop func()) {
	unheard := make(chan os.Signal, 1) // not ignored, since the command would inherit that
	for _, s := range []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN} {
		if !signal.Ignored(s) {
			signal.Notify(unheard, s)
		}
	}
	return func() { signal.Stop(unheard) }
}

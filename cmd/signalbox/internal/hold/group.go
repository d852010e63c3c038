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
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// group is a command in a separate process group, with this process's standard streams. mu is held while the command
// starts, so that no child is reaped then: the command could end before its process id is known.
type group struct {
	mu       sync.Mutex
	pid      int    // guarded by mu until the command runs
	takeBack func() // takes the terminal back; guarded by mu
	ended    chan struct{}
	outcome  syscall.WaitStatus // valid once ended is closed
}

// newGroup returns a group without a command. Until stop is called, this process reaps all its children that end. It is
// the parent of the command's orphans, or process 1, so no other process can reap them.
func newGroup() (_ *group, stop func()) {
	adoptOrphans()
	g := &group{ended: make(chan struct{})}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.reap() // reap children that ended before
		for range ends {
			g.reap()
		}
	}()
	return g, func() {
		signal.Stop(ends)
		close(ends)
		<-over
	}
}

// begin starts a command.
func (g *group) begin(command, environment []string) (child, error) {
	started := make(chan error)
	go func() {
		// The kernel kills the command when the thread that has started it ends, so this thread must not end.
		runtime.LockOSThread()
		err := g.lend(command, environment)
		if started <- err; err == nil {
			<-g.ended
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return g, nil
}

// lend starts the command and gives it the terminal.
func (g *group) lend(command, environment []string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes)
	g.takeBack = lendTerminal(attributes) // state: of the terminal
	err := g.start(command, environment, attributes)
	signal.Ignore(syscall.SIGTTOU) // else this process would be stopped in the background; after the start, since the command would inherit it
	if err != nil {
		g.takeBack()
	}
	return err
}

// start starts the command. If it is a script without #!, it starts a shell for it, as shells do.
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

// isText reports whether the file begins without a NUL byte. Shells take a NUL as the sign of a program for another
// machine.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 128)
	n, _ := io.ReadFull(file, head) // fails for a short file
	return !bytes.Contains(head[:n], []byte{0})
}

// reap reaps all children that have ended. If the command was stopped, for example by Ctrl-Z, reap continues it: a
// stopped command would hold its permits without working, and there is no shell to continue it.
func (g *group) reap() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED|syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0: // no child has ended
			return
		case pid != g.pid: // an orphan
		case status.Stopped():
			g.signal(syscall.SIGCONT)
		default:
			g.takeBack()
			g.outcome = status
			close(g.ended)
		}
	}
}

func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.pid, s) // ESRCH: the whole group has just ended
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
		return cli.StatusSignal + int(syscall.SIGKILL) // it was sent KILL, and hangs in the kernel
	}
	if g.outcome.Signaled() {
		return cli.StatusSignal + int(g.outcome.Signal())
	}
	return g.outcome.ExitStatus()
}

// lendTerminal gives the terminal's foreground to the command's group if this process has it. Only the foreground group
// may read the terminal and gets Ctrl-C.
func lendTerminal(a *syscall.SysProcAttr) (takeBack func()) {
	terminal := int(os.Stdin.Fd())
	foreground, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return func() {} // no terminal, or another group has its foreground
	}
	a.Foreground, a.Ctty = true, terminal
	return func() { _ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, foreground) }
}

// stayAwake prevents Ctrl-Z from stopping this process, which must renew the session.
func stayAwake() (stop func()) {
	unheard := make(chan os.Signal, 1) // a channel without a reader: the command would inherit signal.Ignore
	for _, s := range []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN} {
		if !signal.Ignored(s) {
			signal.Notify(unheard, s)
		}
	}
	return func() { signal.Stop(unheard) }
}

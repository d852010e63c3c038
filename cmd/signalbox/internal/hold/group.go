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

// group is a command in a separate process group, with this process's standard streams. No child is reaped while the
// command starts: the command could have ended before its id is known.
type group struct {
	mu       sync.Mutex
	pid      int    // under mu until the command runs
	takeBack func() // takes the terminal back, under mu
	ended    chan struct{}
	outcome  syscall.WaitStatus // read after ended
}

// newGroup returns a group without a command. Until stop is called this process reaps every process that ends as its
// child: as process 1, or as the parent of the command's orphans, no other process can.
func newGroup() (_ *group, stop func()) {
	adoptOrphans()
	g := &group{ended: make(chan struct{})}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.reap() // what has ended before
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
		// To the kernel, a parent's death is the death of the thread that started the child.
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

// lend starts the command, with the terminal.
func (g *group) lend(command, environment []string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes)
	g.takeBack = lendTerminal(attributes) // state: of the terminal
	err := g.start(command, environment, attributes)
	signal.Ignore(syscall.SIGTTOU) // after the start, since the command would inherit it: it would stop this process in the background
	if err != nil {
		g.takeBack()
	}
	return err
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

// reap takes the status of each child of this process that has ended. It continues the command whenever it is
// stopped, as by Ctrl-Z: the command would hold its permits without working, and no shell would continue it.
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

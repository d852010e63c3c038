//go:build processes && linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram is a variable. With it the test binary is the program, so that tests run real processes of the code under
// test.
const asProgram = "SIGNALBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == asCommand {
		act(os.Args[2], os.Args[3])
	}
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is one running program.
type process struct {
	command *exec.Cmd
	log     string // file with its stderr and stdout
	done    chan struct{}
	err     error // of Wait; read after done
}

// startProcess runs a program, by default this program. The process is killed at the end of the test at the latest. If
// the test fails, its log is printed.
func startProcess(t *testing.T, program, log string, arguments ...string) *process {
	t.Helper()
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer output.Close() // the child has its own
	p := &process{log: log, done: make(chan struct{})}
	p.command = exec.Command(program, arguments...)
	p.command.Env = append(os.Environ(), asProgram+"=1")
	p.command.Stdout, p.command.Stderr = output, output
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.command.Start())
	go func() {
		p.err = p.command.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s ended with %q:\n%s", filepath.Base(log), fmt.Sprint(p.err), tail(log, 60))
		}
	})
	return p
}

// tail is the last lines of a file.
func tail(file string, count int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(text, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-count):], []byte("\n")))
}

func (p *process) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// kill kills the process with SIGKILL and waits until it has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// terminate sends SIGTERM and returns how long the process took to end. The test fails unless the process ends with
// status 0 within the time, and has replied to all requests.
func (p *process) terminate(t *testing.T, within time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(within):
		t.Errorf("still running %v after SIGTERM", within)
		p.signal(syscall.SIGQUIT) // its goroutines go to the log
		<-p.done
	}
	took := time.Since(start)
	if p.err != nil {
		t.Errorf("status after SIGTERM: %v", p.err)
	}
	end := tail(p.log, 100)
	end = end[max(0, strings.LastIndex(end, "signalbox: stopping")):] // an earlier process wrote to the same log
	if strings.Contains(end, "drained in part") || strings.Contains(end, "were cut off") {
		t.Errorf("not all requests were answered:\n%s", end)
	}
	return took
}

// processes is a cluster of three processes.
type processes struct {
	*client
	t       *testing.T
	program string
	dir     string
	base    int // HTTP on base, base+1, base+2; peers on base+10 and so on
	extra   []string
	own     [3][]string // flags of one node
	running [3]*process
}

// startProcesses starts three nodes and waits until all are ready.
func startProcesses(t *testing.T, program string, extra ...string) *processes {
	t.Helper()
	c := newProcesses(t, program, extra...)
	c.startAll()
	return c
}

// newProcesses returns a cluster of three nodes that do not run yet.
func newProcesses(t *testing.T, program string, extra ...string) *processes {
	t.Helper()
	c := &processes{t: t, program: program, dir: t.TempDir(), base: freePorts(t, 0, 1, 2, 10, 11, 12), extra: extra}
	c.client = newClient(c.url(0), c.url(1), c.url(2))
	return c
}

// startAll starts the three nodes and waits until all are ready.
func (c *processes) startAll() {
	c.t.Helper()
	for node := range c.running {
		c.start(node)
	}
	for node := range c.running {
		c.waitReady(node)
	}
}

// restart ends a node in order and starts it again.
func (c *processes) restart(node int) {
	c.t.Helper()
	c.running[node].terminate(c.t, stopWithin)
	c.start(node)
	c.waitReady(node)
}

func (c *processes) url(node int) string { return fmt.Sprintf("http://127.0.0.1:%d", c.base+node) }

func (c *processes) peer(node int) string { return fmt.Sprintf("127.0.0.1:%d", c.base+10+node) }

func (c *processes) start(node int) {
	c.t.Helper()
	id := fmt.Sprintf("n%d", node+1)
	arguments := append([]string{
		"serve", "--node-id", id, "--http", fmt.Sprintf("127.0.0.1:%d", c.base+node), "--peer", c.peer(node),
		"--peers", fmt.Sprintf("n1=%s,n2=%s,n3=%s", c.peer(0), c.peer(1), c.peer(2)),
		"--data", filepath.Join(c.dir, id), "--min-free", "1MiB",
	}, c.extra...)
	arguments = append(arguments, c.own[node]...)
	c.running[node] = startProcess(c.t, c.program, filepath.Join(c.dir, id+".log"), arguments...)
}

func (c *processes) waitReady(node int) {
	c.t.Helper()
	eventually(c.t, time.Minute, func() error {
		select {
		case <-c.running[node].done:
			return fmt.Errorf("n%d ended: %v", node+1, c.running[node].err)
		default:
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		defer cancel()
		r, err := c.ask(ctx, node, http.MethodGet, "/readyz?verbose", "")
		if err == nil && r.status != http.StatusOK {
			err = errors.New(strings.ReplaceAll(r.Detail, "\n", "; "))
		}
		return err
	})
}

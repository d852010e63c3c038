//go:build processes && linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal: text that is written to keys is typed on it.
func openTerminal(t *testing.T) (keys, terminal *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no terminals to give: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keys, terminal
}

// TestRunInTerminal types: what the command reads is for it, as is Ctrl-C; Ctrl-Z
// stops neither it nor run. Afterwards the terminal is the shell's again.
func TestRunInTerminal(t *testing.T) {
	keys, terminal := openTerminal(t)
	_, url, _ := startAlone(t)
	s := newStage(t)
	log := filepath.Join(t.TempDir(), "shell.log")
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	shell := exec.Command("sh", slices.Concat(
		[]string{"-c", `trap : INT; "$@"; echo status $?; read line; echo "read $line"`, "sh", testProgram, "run", "db", "--permits", "1", "--addr", url},
		s.command())...)
	shell.Env = append(os.Environ(), asProgram+"=1")
	shell.Stdin, shell.Stdout, shell.Stderr = terminal, output, output
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{command: shell, log: log, done: make(chan struct{})}
	go func() {
		p.err = shell.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	press := func(text string) {
		if _, err := keys.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	child := s.next()
	child.tell("read")
	press("hello\n")
	child.says("read hello <nil>")
	press("\x1a") // Ctrl-Z
	child.tell("read")
	press("still here\n")
	child.says("read still here <nil>")
	press("\x03") // Ctrl-C
	child.hears(syscall.SIGINT)
	child.tell("exit 9")
	p.logs(t, "status 9")
	press("back\n")
	p.logs(t, "read back")
	p.exits(t, 0)
}

//go:build processes && linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal. Text that is written to keys counts as typed.
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
	must(t, err)
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keys, terminal
}

// TestRunInTerminal types into a terminal. The command gets the text and Ctrl-C. Ctrl-Z stops neither the command nor
// run. Afterwards the shell has the terminal again.
func TestRunInTerminal(t *testing.T) {
	t.Parallel()
	keys, terminal := openTerminal(t)
	_, url, _ := startAlone(t)
	s := newStage(t)
	log := filepath.Join(t.TempDir(), "shell.log")
	output, err := os.Create(log)
	must(t, err)
	defer output.Close()
	shell := exec.Command("sh", slices.Concat(
		[]string{"-c", `trap : INT; "$@"; echo status $?; read line; echo "read $line"`, "sh", testProgram, "run", "db", "--permits", "1", "--addr", url},
		s.command())...)
	shell.Env = append(os.Environ(), asProgram+"=1")
	shell.Stdin, shell.Stdout, shell.Stderr = terminal, output, output
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	must(t, shell.Start())
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

// TestWaitingOnTerminal: run, elect, acquire and down say on a terminal what they wait for, and remove that line.
func TestWaitingOnTerminal(t *testing.T) {
	t.Parallel()
	_, url, _ := startAlone(t)
	for i, verb := range []string{"run", "elect"} {
		first := startProcess(t, testProgram, filepath.Join(t.TempDir(), "first.log"),
			slices.Concat([]string{verb, "db", "--addr", url}, [][]string{{"--permits", "1"}, {"--value", "west"}}[i], []string{"--", "sh", "-c", "echo holding; exec sleep 600"})...)
		first.logs(t, "holding")
		if o := command(t, [][]string{{"sessions"}, {"item", "ls"}}[i], "SIGNALBOX_ADDR", url); !strings.Contains(o.stdout, fmt.Sprintf(" pid %d command=sh  ", first.command.Process.Pid)) {
			t.Errorf("%+v", o)
		}
		for _, line := range [][2]string{
			{"run db --wait 1m -- true", "waiting for 1 of db, at place 1 of 1: held by %s@%s pid %d command="},
			{"acquire db --wait 1m", "waiting for 1 of db, at place 1 of 1: held by %s@%s pid %d command="},
			{"down db --wait 1m", "waiting for 1 of db: held by %s@%s pid %d command="},
			{"elect db -- true", `waiting to lead db: "west" leads (session `},
		} {
			if (verb == "elect") != strings.HasPrefix(line[0], "elect") {
				continue
			}
			keys, terminal := openTerminal(t)
			waits := exec.Command(testProgram, append(strings.Fields(line[0])[:2:2], append([]string{"--addr", url}, strings.Fields(line[0])[2:]...)...)...)
			waits.Env, waits.Stderr = append(os.Environ(), asProgram+"=1"), terminal
			waits.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			must(t, waits.Start())
			terminal.Close()
			host, _ := os.Hostname()
			want := line[1]
			if strings.Contains(want, "%d") {
				me, _ := user.Current()
				want = fmt.Sprintf(want, me.Username, host, first.command.Process.Pid)
			}
			shown := bufio.NewReader(keys)
			for seen := ""; !strings.Contains(seen, want); {
				c, err := shown.ReadByte()
				if err != nil {
					t.Fatalf("%s: %q, %v", line[0], seen, err)
				}
				seen += string(c)
			}
			_ = waits.Process.Signal(syscall.SIGINT)
			rest, _ := io.ReadAll(shown) // the terminal ends with its last process
			_ = waits.Wait()
			if !strings.Contains(string(rest), "\r\x1b[K") {
				t.Errorf("%s: the line is left there, with %q", line[0], rest)
			}
		}
		first.signal(syscall.SIGTERM)
		first.exits(t, 128+int(syscall.SIGTERM))
	}
}

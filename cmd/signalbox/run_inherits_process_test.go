//go:build processes && linux

package main

import (
	"crypto/sha256"
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

// TestRunChangesNothing runs shell scripts in which "$@" stands before a command. "$@" is first empty, then "signalbox
// run …".
func TestRunChangesNothing(t *testing.T) {
	t.Parallel()
	_, url, _ := startAlone(t)
	file := filepath.Join(t.TempDir(), "script")
	must(t, os.WriteFile(file, []byte("echo $# $1 $0\nexit 3\n"), 0o700))
	for _, script := range []string{
		`"$@" grep SigIgn /proc/self/status`,
		`trap '' PIPE TERM USR1; "$@" grep SigIgn /proc/self/status`,
		`trap '' HUP QUIT TSTP TTOU; "$@" grep SigIgn /proc/self/status`,
		`"$@" grep SigIgn /proc/self/status & wait`, // INT and QUIT
		`"$@" "$SCRIPT" 'a b'; echo $?`,
	} {
		var outputs [2]string
		for i, before := range [][]string{nil, {testProgram, "run", "db", "--permits", "1", "--addr", url, "--"}} {
			shell := exec.Command("sh", append([]string{"-c", script, "sh"}, before...)...)
			shell.Env = append(os.Environ(), asProgram+"=1", "SCRIPT="+file)
			output, err := shell.CombinedOutput()
			if outputs[i] = string(output); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		}
		if outputs[0] != outputs[1] {
			t.Errorf("%s\nalone: %s\nby run: %s", script, outputs[0], outputs[1])
		}
	}
}

// TestRunReaps: run reaps two kinds of process, so that no zombie stays: children that the process had before it became
// run, while run waits; and orphans of the command, while the command runs. This holds whether run is an ordinary
// process or process 1. As process 1 it also passes TERM on.
func TestRunReaps(t *testing.T) {
	t.Parallel()
	_, url, _ := startAlone(t)
	c := newClient(url)
	for name, flags := range map[string]uintptr{"ordinary": 0, "process 1": syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			made := filepath.Join(t.TempDir(), "made")
			c.must(t, 0, http.MethodPut, semaphorePath(name), `{"permits":1}`, http.StatusCreated)
			c.must(t, 0, http.MethodPost, semaphorePath(name)+"/down", `{}`, http.StatusOK)
			before := `sh -c : & (sleep 0.1 &); exec "$@"`
			script := `trap 'exit 7' TERM; for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c : & sh -c : &); done; : > "$0"; while :; do sleep 0.05; done`
			run := exec.Command("sh", "-c", before, "sh", testProgram, "run", name, "--addr", url, "--", "sh", "-c", script, made)
			run.Env = append(os.Environ(), asProgram+"=1")
			run.Stderr = os.Stderr
			run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: flags}
			if err := run.Start(); err != nil && flags != 0 {
				t.Skipf("this machine gives no namespaces: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			defer run.Wait()
			defer run.Process.Kill()
			children := func() string {
				all, _ := exec.Command("ps", "-o", "stat=,args=", "--ppid", fmt.Sprint(run.Process.Pid)).Output() // fails without a child
				return strings.TrimSpace(string(all))
			}
			eventually(t, 20*time.Second, func() error {
				s := c.must(t, 0, http.MethodGet, semaphorePath(name), "", http.StatusOK)
				if all := children(); len(s.Waiters) != 1 || all != "" {
					return fmt.Errorf("%d waiters; children of run: %s", len(s.Waiters), all)
				}
				return nil
			})
			c.must(t, 0, http.MethodPost, semaphorePath(name)+"/up", `{}`, http.StatusOK)
			eventually(t, 20*time.Second, func() error {
				if _, err := os.Stat(made); err != nil {
					return err
				}
				if all := children(); strings.Count(all, "\n") != 0 || !strings.Contains(all, made) {
					return fmt.Errorf("children of run: %s", all)
				}
				return nil
			})
			_ = run.Process.Signal(syscall.SIGTERM)
			if _ = run.Wait(); run.ProcessState.ExitCode() != 7 {
				t.Errorf("%v", run.ProcessState)
			}
		})
	}
}

// TestRunInRun: on a cluster with tokens, the variable of the credentials and the variable of the fencing token are
// different variables.
func TestRunInRun(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.toml")
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "[[token]]\nname = \"job\"\nhash = \"sha256:%x\"\nscopes = [\"use\"]\n", sha256.Sum256([]byte(useToken))), 0o600); err != nil {
		t.Fatal(err)
	}
	_, url, _ := startAlone(t, "--tokens", tokens)
	run := func(name string, command ...string) []string {
		return append([]string{testProgram, "run", name, "--permits", "1", "--addr", url, "--"}, command...)
	}
	outer := run("a", run("b", "sh", "-c", "echo $SIGNALBOX_SEMAPHORE")...)
	both := exec.Command(outer[0], outer[1:]...)
	both.Env = append(os.Environ(), asProgram+"=1", "SIGNALBOX_API_TOKEN="+useToken)
	if output, err := both.CombinedOutput(); err != nil || string(output) != "b\n" {
		t.Errorf("%v: %s", err, output)
	}
}

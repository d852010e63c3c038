package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// outcome is the status and the output of a command.
type outcome struct {
	status         int
	stdout, stderr string
}

// command runs the program with the arguments, in this process. variables has names and values in turn.
func command(t testing.TB, arguments []string, variables ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := run(ctx, arguments, lookup(t, variables...), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// lookup returns the environment of a command: the variables, with names and values in turn, and free ports. Without
// these a test would use the default ports, which another program may have.
func lookup(t testing.TB, variables ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i+1 < len(variables); i += 2 {
			if variables[i] == name {
				return variables[i+1], true
			}
		}
		switch name {
		case "SIGNALBOX_HTTP", "SIGNALBOX_PEER":
			return fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0)), true
		case "SIGNALBOX_HTTP_PORT":
			return fmt.Sprint(freePorts(t, 0, 1, 2, peerOffset, peerOffset+1, peerOffset+2)), true
		}
		return "", false
	}
}

// refused checks that a command failed: it printed its error on one line, perhaps with a second line on what to do next,
// and its status was not 0. The two lines must have the given words.
func (o outcome) refused(t *testing.T, words ...string) {
	t.Helper()
	if o.status == 0 {
		t.Errorf("status 0; stdout %q", o.stdout)
	}
	lines := strings.Count(strings.Replace(o.stderr, "\n  ", " ", 1), "\n")
	if o.stdout != "" || lines != 1 || !strings.HasPrefix(o.stderr, "signalbox: ") {
		t.Errorf("not one line on stderr: %q, and on stdout %q", o.stderr, o.stdout)
	}
	if strings.Contains(o.stderr, "httpapi:") {
		t.Errorf("it speaks of its inside: %q", o.stderr)
	}
	for _, word := range words {
		if !strings.Contains(o.stderr, word) {
			t.Errorf("%q doesn't say %q", o.stderr, word)
		}
	}
}

// TestRefusals runs the scripts of testdata/refusals. Each command ends at once with an error, a status and what to do
// next, and makes no file. NAME=VALUE before a command is a variable, in whose value _ stands for a space.
func TestRefusals(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join("testdata", "refusals"))
	must(t, err)
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var shown strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				t.Chdir(t.TempDir())
				words, variables := strings.Fields(line), []string(nil)
				for strings.HasPrefix(words[0], "SIGNALBOX_") {
					name, value, _ := strings.Cut(words[0], "=")
					words, variables = words[1:], append(variables, name, strings.ReplaceAll(value, "_", " "))
				}
				o := command(t, words, variables...)
				o.refused(t)
				fmt.Fprintf(&shown, "> %s\n%sexit status %d\n", line, o.stderr, o.status)
				if left, _ := os.ReadDir("."); len(left) > 0 {
					t.Errorf("%s has made %s", line, left[0].Name())
				}
			}
			return shown.String()
		})
	})
}

func TestHelpNamesVariables(t *testing.T) {
	if o := command(t, []string{"serve", "--help"}); o.status != 0 || !strings.Contains(o.stdout, "SIGNALBOX_NODE_ID") {
		t.Errorf("%+v", o)
	}
}

func TestHealthcheck(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintln(w, "said so")
	}))
	defer server.Close()
	if o := command(t, []string{"healthcheck", "--url", server.URL}); o.status != 0 || o.stdout != "said so\n" {
		t.Errorf("%+v", o)
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, address := range []string{"127.0.0.1:", "0.0.0.0:", "[::]:", ":", "localhost:"} {
		if o := command(t, []string{"healthcheck"}, "SIGNALBOX_HTTP", address+port); o.status != 0 || o.stdout != "said so\n" {
			t.Errorf("the node is at %s: %+v", address, o)
		}
	}
	for variables, want := range map[[2]string]int{ // the values of SIGNALBOX_HTTP and SIGNALBOX_ADDR
		{"", server.URL + "/"}:                  0,
		{"", "127.0.0.1:" + port}:               0,
		{"127.0.0.1:1", server.URL}:             1,
		{":" + port, "http://127.0.0.1:1"}:      0,
		{"", "http://s3cret@127.0.0.1:" + port}: 0,
		{"", "http://s3cret@127.0.0.1:1"}:       1,
	} {
		if o := command(t, []string{"healthcheck"}, "SIGNALBOX_HTTP", variables[0], "SIGNALBOX_ADDR", variables[1]); o.status != want || strings.Contains(o.stderr, "s3cret") {
			t.Errorf("%q: %+v", variables, o)
		}
	}
	if o := command(t, []string{"healthcheck", "--url", server.URL}, "SIGNALBOX_HTTP", "127.0.0.1:1"); o.status != 0 {
		t.Errorf("the command line does not win: %+v", o)
	}
	if got := ownURL(lookup(t, "SIGNALBOX_HTTP", "", "SIGNALBOX_ADDR", "n1:1,n2:1")); got != "http://127.0.0.1:8701/readyz" {
		t.Errorf("with the addresses of several nodes it asks %s", got)
	}
	if got := ownURL(func(string) (string, bool) { return "", false }); got != "http://127.0.0.1:8701/readyz" {
		t.Errorf("by default it asks %s", got)
	}
	status = http.StatusServiceUnavailable
	command(t, []string{"healthcheck", "--url", server.URL}).refused(t, "503", "said so")
}

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "65536": 65536, "64KiB": 65536, "1 MiB": 1 << 20, "2GiB": 2 << 30, "7B": 7} {
		var s size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%q is %d (%v), not %d", text, s, err, want)
		}
		var again size
		if err := again.Set(s.String()); err != nil || again != want {
			t.Errorf("%q shows as %q, which is %d (%v)", text, s.String(), again, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "64k", "9223372036854775807KiB", "MiB"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %d", text, s)
		}
	}
}

// TestInTheWay starts a node whose folder or port is in use.
func TestInTheWay(t *testing.T) {
	serve := func(t *testing.T, http, peer, data string) outcome {
		return command(t, []string{"serve", "--http", http, "--peer", peer, "--data", data, "--min-free", "1MiB"})
	}
	address := func(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0)) }
	taken, err := net.Listen("tcp", address(t))
	must(t, err)
	defer taken.Close()
	t.Run("HTTP port", func(t *testing.T) {
		serve(t, taken.Addr().String(), address(t), t.TempDir()).refused(t, "--http", taken.Addr().String(), "in use")
	})
	t.Run("peer port", func(t *testing.T) {
		serve(t, address(t), taken.Addr().String(), t.TempDir()).refused(t, "--peer", taken.Addr().String(), "in use")
	})
	t.Run("ports of dev", func(t *testing.T) { // which has another flag
		_, port, _ := net.SplitHostPort(taken.Addr().String())
		peers, _ := strconv.Atoi(port)
		for _, first := range []int{peers, peers - peerOffset} {
			command(t, []string{"dev", "--nodes", "1", "--http-port", fmt.Sprint(first)}).
				refused(t, "signalbox: --http-port: ", taken.Addr().String(), "in use", fmt.Sprintf("%d to %d", first+peerOffset, first+peerOffset))
		}
	})
	t.Run("folder in use", func(t *testing.T) {
		data := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		first := startInProcess(ctx, t, "serve", "--http", address(t), "--peer", address(t), "--data", data, "--min-free", "1MiB")
		first.awaitLog(t, "serving")
		serve(t, address(t), address(t), data).refused(t, data, "in use")
		cancel()
		first.ended(t, 5*time.Second)
	})
	t.Run("foreign folder", func(t *testing.T) {
		data := t.TempDir()
		must(t, os.WriteFile(filepath.Join(data, "thesis.txt"), []byte("years of work"), 0o600))
		serve(t, address(t), address(t), data).refused(t, data, "not a Signalbox data folder")
		command(t, []string{"dev", "--data", data, "--http-port", fmt.Sprint(freePorts(t, 0, 1, 2, 10, 11, 12))}).
			refused(t, data, "not empty")
	})
	t.Run("another node's folder", func(t *testing.T) {
		data := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		first := startInProcess(ctx, t, "serve", "--node-id", "n7", "--http", address(t), "--peer", address(t), "--data", data, "--min-free", "1MiB")
		first.awaitLog(t, "serving")
		cancel()
		first.ended(t, 5*time.Second)
		serve(t, address(t), address(t), data).refused(t, data, "n7", "n1")
	})
	t.Run("folder that can't be made", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(file, nil, 0o600))
		serve(t, address(t), address(t), filepath.Join(file, "data")).refused(t, file)
	})
}

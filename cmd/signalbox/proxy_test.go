package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// named is a server that replies with its name. At a request for the semaphore us/slow it first sends to came, and then
// waits for a value on came.
func named(t *testing.T, name string, came chan struct{}) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/slow") {
			came <- struct{}{}
			<-came
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestProxy: the proxy sends requests about a name to the nodes of its cell. It reads its file again at SIGHUP, and
// keeps the cells if the file is wrong. A request that is under way then gets its reply.
func TestProxy(t *testing.T) {
	came := make(chan struct{})
	first, second := named(t, "first", came), named(t, "second", came)
	file := filepath.Join(t.TempDir(), "cells.toml")
	write := func(prefix string) {
		t.Helper()
		must(t, os.WriteFile(file, fmt.Appendf(nil, "[[cell]]\nnumber = 1\nprefix = [\"\"]\nnodes = [%q]\n[[cell]]\nnumber = 2\nprefix = [%q]\nnodes = [%q]\n",
			first, prefix, second), 0o600))
	}
	write("us/")
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0))
	p := startInProcess(t.Context(), t, "proxy", "--cells", file, "--listen", address)
	p.awaitLog(t, "serving")
	ask := func(name string) string {
		t.Helper()
		response, err := http.Get("http://" + address + "/v1/semaphores/" + name)
		must(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		return string(text)
	}
	reload := func(words string) {
		t.Helper()
		hangUp(t)
		p.awaitLog(t, words)
	}
	if got := ask("eu%2Fa") + " " + ask("us%2Fa"); got != "first second" {
		t.Errorf("at first: %s", got)
	}
	slow := make(chan string, 1)
	go func() {
		defer close(slow)
		slow <- ask("us%2Fslow")
	}()
	<-came
	write("eu/")
	reload("the cells were read again")
	if got := ask("eu%2Fa") + " " + ask("us%2Fa"); got != "second first" {
		t.Errorf("after the move: %s", got)
	}
	write("")
	reload("the cells before stay in use: error=\"--cells: " + file + `: the prefix \"\" is there twice: in cell 1 and in cell 2"`)
	if got := ask("eu%2Fa"); got != "second" {
		t.Errorf("after a mistake: %s", got)
	}
	came <- struct{}{}
	if got := <-slow; got != "second" {
		t.Errorf("the request under way: %s", got)
	}
}

// TestProxyEndsIdleConnections: a connection without a request ends after --idle-timeout.
func TestProxyEndsIdleConnections(t *testing.T) {
	file, address := filepath.Join(t.TempDir(), "cells.toml"), fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0))
	must(t, os.WriteFile(file, []byte("[[cell]]\nnumber = 1\nprefix = [\"\"]\nnodes = [\"http://127.0.0.1:1\"]\n"), 0o600))
	startInProcess(t.Context(), t, "proxy", "--cells", file, "--listen", address, "--idle-timeout", "50ms").awaitLog(t, "serving")
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n")
	if reply, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 200") {
		t.Errorf("%q, %v", reply, err)
	}
}

// TestProxyRefusesUnsafeFlags: the proxy sends tokens over plain HTTP to other machines only if an operator allows it.
func TestProxyRefusesUnsafeFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cells.toml")
	for _, c := range []struct{ node, flags, want string }{
		{"http://n1.example:8701", "", "http://n1.example:8701"},
		{"http://127.0.0.1:1", "--listen 0.0.0.0:1", "--listen"},
		{"http://127.0.0.1:1", "--listen 127.0.0.1:1 --tls-cert x", "--tls-key"},
		{"http://127.0.0.1:1", "--listen 127.0.0.1", "--listen"},
		{"http://u@127.0.0.1:1", "", "without a user"},
		{"http://127.0.0.1:1", "--ca missing.pem", "--ca"},
		{"http://127.0.0.1:1", "--idle-timeout 0", "--idle-timeout"},
		{"http://127.0.0.1:1", "--cells missing.toml", "missing.toml"},
	} {
		must(t, os.WriteFile(file, fmt.Appendf(nil, "[[cell]]\nnumber = 1\nprefix = [\"\"]\nnodes = [%q]\n", c.node), 0o600))
		command(t, append([]string{"proxy", "--cells", file}, strings.Fields(c.flags)...)).refused(t, c.want)
	}
	command(t, []string{"proxy"}).refused(t, "--cells")
	must(t, os.WriteFile(file, []byte("[[cell]]\nnumber = 1\nprefix = [\"\"]\nnodes = [\"http://n1.example:1\"]\n"), 0o600))
	p := startInProcess(t.Context(), t, "proxy", "--cells", file, "--insecure-http", "--listen", fmt.Sprintf("0.0.0.0:%d", freePorts(t, 0)))
	p.awaitLog(t, "serving")
}

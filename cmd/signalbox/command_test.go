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
)

// outcome is what a command did.
type outcome struct {
	status         int
	stdout, stderr string
}

// command runs the program with the arguments, in this process. variables are
// name, value, …
func command(t testing.TB, arguments []string, variables ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := run(ctx, arguments, lookup(t, variables...), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// lookup returns the environment of a command: the variables (name, value, …), and ports that are
// free, so that no test takes the default ones, which another program may have.
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

// refused checks that a command reported its error in one line, perhaps with what to do
// next in another, which have the given words, and ended with another status than 0.
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

// TestNoDefaultPorts: a command without flags for its ports takes free ones in these tests.
func TestNoDefaultPorts(t *testing.T) {
	startInProcess(t.Context(), t, "serve", "--ephemeral").awaitLog(t, "serving")
	serve := startInProcess(t.Context(), t, "serve", "--ephemeral") // a second one, on the same machine
	serve.awaitLog(t, "serving")
	dev := startInProcess(t.Context(), t, "dev", "--nodes", "1")
	dev.awaitOutput(t, "Paste")
	if text := serve.stderr.String() + dev.stdout.String(); strings.Contains(text, ":8701") || strings.Contains(text, ":8711") {
		t.Error(text)
	}
}

func TestBadFlags(t *testing.T) {
	trio := "n1=127.0.0.1:8711,n2=127.0.0.1:8712,n3=127.0.0.1:8713"
	cases := []struct {
		name      string
		arguments string
		words     []string
	}{
		{"no data", "serve", []string{"--data", "--ephemeral"}},
		{"unknown flag", "serve --nodes 3", []string{"unknown flag: --nodes"}},
		{"unknown command", "server", []string{`unknown command "server"`}},
		{"a word too much", "serve data", []string{"serve takes no arguments", `"data"`}},
		{"not a number", "serve --data d --raft-multiplier fast", []string{"raft-multiplier", "fast"}},
		{"multiplier out of range", "serve --data d --raft-multiplier 21", []string{"raft-multiplier", "20"}},
		{"peers without ids", "serve --data d --node-id n1 --peers 127.0.0.1:8711", []string{"--peers", "id=host:port"}},
		{"peers without ports", "serve --data d --node-id n1 --peers n1=127.0.0.1", []string{"--peers: n1", "host:port"}},
		{"peer port 0", "serve --data d --node-id n1 --peers n1=127.0.0.1:0", []string{"--peers: n1", "65535"}},
		{"own id missing", "serve --data d --node-id n4 --peers " + trio, []string{"--peers", "n4"}},
		{"own id not told", "serve --data d --peers " + trio, []string{"--node-id"}},
		{"id twice", "serve --data d --node-id n1 --peers n1=127.0.0.1:8711,n1=127.0.0.1:8712", []string{"n1", "twice"}},
		{"address twice", "serve --data d --node-id n1 --peers n1=127.0.0.1:8711,n2=127.0.0.1:8711", []string{"127.0.0.1:8711"}},
		{"bad id", "serve --data d --node-id a/b", []string{"--node-id", `"a/b"`}},
		{"peer port open to all", "serve --data d --peer 0.0.0.0:8711", []string{"--peer", "--insecure-peers"}},
		{"half a certificate", "serve --data d --peer-cert c --peer-ca ca", []string{"--peer-cert, --peer-key and --peer-ca"}},
		{"no certificate there", "serve --ephemeral --peer-cert none.pem --peer-key k --peer-ca ca", []string{"--peer-cert: open none.pem"}},
		{"half of HTTPS", "serve --data d --tls-cert c", []string{"--tls-cert and --tls-key"}},
		{"no certificate of HTTPS there", "serve --ephemeral --tls-cert none.pem --tls-key k", []string{"--tls-cert: open none.pem"}},
		{"clients' certificates without HTTPS", "serve --data d --tls-client-ca ca.pem", []string{"--tls-client-ca", "--tls-cert"}},
		{"peers elsewhere", "serve --data d --node-id n1 --peer 127.0.0.1:8711 --peers n1=127.0.0.1:8711,n2=192.0.2.1:8711", []string{"--peers: n2", "--insecure-peers"}},
		{"ephemeral with data", "serve --ephemeral --data d", []string{"--ephemeral", "--data"}},
		{"ephemeral with peers", "serve --ephemeral --node-id n1 --peers " + trio, []string{"--ephemeral", "one node"}},
		{"http without port", "serve --data d --http localhost", []string{"--http", "host:port"}},
		{"tokens that are not there", "serve --data d --tokens none.toml", []string{"--tokens", "none.toml"}},
		{"proxies without an audit log", "serve --data d --trusted-proxies 10.0.0.0/8", []string{"--trusted-proxies", "--audit"}},
		{"a proxy's name", "serve --data d --audit stderr --trusted-proxies proxy", []string{"--trusted-proxies", "proxy"}},
		{"http open to all", "serve --data d --http 0.0.0.0:8701", []string{"--http", "--tls-cert and --tokens", "--insecure-http"}},
		{"http on every interface", "serve --data d --http :8701", []string{"--http", "--insecure-http"}},
		{"http elsewhere", "serve --data d --http 192.0.2.1:8701", []string{"--http", "192.0.2.1", "--insecure-http"}},
		{"a host with a port", "serve --ephemeral --allow-host sb.example:8701", []string{"--allow-host", "sb.example:8701", "port"}},
		{"a host with a scheme in dev", "dev --allow-host http://sb.example", []string{"--allow-host", "http://sb.example"}},
		{"log level", "serve --data d --log-level loud", []string{"--log-level", "loud"}},
		{"size", "serve --data d --min-free much", []string{"min-free", "much"}},
		{"limit of nothing", "serve --data d --max-leases 0", []string{"--max-leases", "above 0"}},
		{"wait list beyond a delivery", "serve --data d --max-wait-list 4097", []string{"--max-wait-list", "4097", "4096"}},
		{"leases beyond one step", "serve --data d --max-session-leases 1000000", []string{"--max-session-leases", "1000000", "4096"}},
		{"size of nothing", "serve --data d --max-body 0KiB", []string{"--max-body", "above 0"}},
		{"time backwards", "serve --data d --max-wait -1s", []string{"--max-wait", "above 0"}},
		{"origin", "serve --ephemeral --cors-allow example.com", []string{"example.com"}},
		{"unknown dialect", "serve --ephemeral --dialects throttle,etcd", []string{"--dialects", `"etcd"`, "throttle", "none"}},
		{"none and one", "serve --ephemeral --dialects none,throttle", []string{"--dialects", `"none"`}},
		{"linger", "serve --ephemeral --lease-linger 101", []string{"--lease-linger", "100"}},
		{"linger backwards", "serve --ephemeral --lease-linger -1", []string{"--lease-linger"}},
		{"linger of Consul's clients", "serve --ephemeral --consul-linger 101", []string{"--consul-linger", "100"}},
		{"nothing to declare", "serve --ephemeral --declare no/such.toml", []string{"--declare", "no/such.toml"}},
		{"unknown dialect in dev", "dev --dialects etcd", []string{"--dialects", `"etcd"`}},
		{"nothing to declare in dev", "dev --data d --declare no/such.toml", []string{"--declare", "no/such.toml"}},
		{"callback host", "serve --ephemeral --callback-allow http://hooks.example/", []string{"--callback-allow", "http://hooks.example/"}},
		{"dev of none", "dev --nodes 0", []string{"--nodes", "1"}},
		{"dev of many", "dev --nodes 10", []string{"--nodes", "9"}},
		{"dev beyond the ports", "dev --http-port 65530", []string{"--http-port"}},
		{"healthcheck of nothing", "healthcheck --url http://127.0.0.1:1/readyz", []string{"refused"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir()) // the folder d, should it be made
			command(t, strings.Fields(c.arguments)).refused(t, c.words...)
			if left, _ := os.ReadDir("."); len(left) > 0 {
				t.Errorf("it has made %s", left[0].Name())
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Run("sets a flag", func(t *testing.T) {
		command(t, []string{"dev"}, "SIGNALBOX_NODES", "77").refused(t, "--nodes")
	})
	t.Run("of any name", func(t *testing.T) {
		command(t, []string{"serve", "--ephemeral"}, "SIGNALBOX_NODE_ID", "a b").refused(t, "--node-id", `"a b"`)
	})
	t.Run("the command line wins", func(t *testing.T) {
		command(t, []string{"dev", "--nodes", "78", "--log-level", "no"}, "SIGNALBOX_NODES", "3").refused(t, "no")
		command(t, []string{"dev", "--nodes", "78"}, "SIGNALBOX_NODES", "3").refused(t, "--nodes")
	})
	t.Run("empty is not set", func(t *testing.T) {
		command(t, []string{"dev", "--nodes", "0"}, "SIGNALBOX_HTTP_PORT", "").refused(t, "--nodes")
	})
	t.Run("what is wrong with it is told with its name", func(t *testing.T) {
		command(t, []string{"serve"}, "SIGNALBOX_MIN_FREE", "much", "SIGNALBOX_EPHEMERAL", "maybe").
			refused(t, "SIGNALBOX_MIN_FREE", `"much"`, "SIGNALBOX_EPHEMERAL", `"maybe"`)
	})
	t.Run("one that the command line takes the place of is not looked at", func(t *testing.T) {
		// The error is about the next mistake, not about the two that don't go together.
		command(t, []string{"serve", "--ephemeral", "--log-level", "no"}, "SIGNALBOX_DATA", "/data").refused(t, "--log-level")
		command(t, []string{"serve", "--data", "d", "--log-level", "no"}, "SIGNALBOX_EPHEMERAL", "true").refused(t, "--log-level")
		for _, arguments := range [][]string{{"serve"}, {"serve", "--ephemeral=false"}} {
			command(t, append(arguments, "--log-level", "no"), "SIGNALBOX_DATA", "/data").refused(t, "--log-level")
		}
		command(t, []string{"serve"}, "SIGNALBOX_DATA", "/data", "SIGNALBOX_EPHEMERAL", "true").refused(t, "--ephemeral", "--data")
	})
	t.Run("help names it", func(t *testing.T) {
		if o := command(t, []string{"serve", "--help"}); o.status != 0 || !strings.Contains(o.stdout, "SIGNALBOX_NODE_ID") {
			t.Errorf("%+v", o)
		}
	})
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
	if o := command(t, []string{"healthcheck", "--url", server.URL}, "SIGNALBOX_HTTP", "127.0.0.1:1"); o.status != 0 {
		t.Errorf("the command line does not win: %+v", o)
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

// TestInTheWay starts a node where something else is already.
func TestInTheWay(t *testing.T) {
	serve := func(t *testing.T, http, peer, data string) outcome {
		return command(t, []string{"serve", "--http", http, "--peer", peer, "--data", data, "--min-free", "1MiB"})
	}
	address := func(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0)) }
	taken, err := net.Listen("tcp", address(t))
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(filepath.Join(data, "thesis.txt"), []byte("years of work"), 0o600); err != nil {
			t.Fatal(err)
		}
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
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		serve(t, address(t), address(t), filepath.Join(file, "data")).refused(t, file)
	})
}

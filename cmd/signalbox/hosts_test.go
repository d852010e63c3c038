package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// called sends GET / to an address under another host name, and returns the status.
func called(t *testing.T, address, host string) (status int) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/livez", nil)
		if err != nil {
			return err
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		status = response.StatusCode
		return response.Body.Close()
	})
	return status
}

// TestHosts: a web page's own host name may lead to a node. The node refuses it on loopback, and wherever names are
// listed. Beyond loopback a node runs without TLS only with --insecure-http.
func TestHosts(t *testing.T) {
	const evil = "evil.example"
	for _, c := range []struct {
		bind, flags string
		want        map[string]int
	}{
		{"127.0.0.1", "", map[string]int{evil: 421, "localhost": 200, "127.0.0.1": 200, "192.0.2.1": 421}},
		{"localhost", "--allow-host sb.example", map[string]int{evil: 421, "sb.example": 200, "localhost": 200}},
		{"127.0.0.1", "--allow-host=*", map[string]int{evil: 200}},
		{"0.0.0.0", "--insecure-http", map[string]int{evil: 200, "192.0.2.1": 200}},
		{"", "--insecure-http --allow-host n1", map[string]int{evil: 421, "n1": 200, "192.0.2.1": 200, "localhost": 200}},
	} {
		t.Run(c.bind+c.flags, func(t *testing.T) {
			port := freePorts(t, 0, 1)
			arguments := []string{"serve", "--ephemeral", "--http", fmt.Sprintf("%s:%d", c.bind, port), "--peer", fmt.Sprintf("127.0.0.1:%d", port+1)}
			startInProcess(t.Context(), t, append(arguments, strings.Fields(c.flags)...)...).awaitLog(t, "serving")
			for host, want := range c.want {
				if got := called(t, fmt.Sprintf("127.0.0.1:%d", port), host); got != want {
					t.Errorf("called %s: status %d, not %d", host, got, want)
				}
			}
		})
	}
	t.Run("dev", func(t *testing.T) {
		_, c, _ := startDev(t.Context(), t, 1, "--allow-host", "sb.example")
		address := strings.TrimPrefix(c.bases[0], "http://")
		for host, want := range map[string]int{evil: 421, "sb.example": 200, "localhost": 200} {
			if got := called(t, address, host); got != want {
				t.Errorf("called %s: status %d, not %d", host, got, want)
			}
		}
	})
}

// TestComposeIsForThisMachine: docker-compose.yml says that its API is open, and publishes it only on loopback. The peer
// ports are not open, and no node has the authority's key.
func TestComposeIsForThisMachine(t *testing.T) {
	text, err := os.ReadFile("../../docker-compose.yml")
	must(t, err)
	for words, times := range map[string]int{`SIGNALBOX_INSECURE_HTTP: "true"`: 1, "SIGNALBOX_ALLOW_HOST: n1,n2,n3,${SIGNALBOX_ALLOW_HOST:-localhost}": 1,
		`ports: ["${SIGNALBOX_BIND:-127.0.0.1}:`: 3, "ports:": 3, "INSECURE_PEERS": 0, "authority:/authority": 1} {
		if got := strings.Count(string(text), words); got != times {
			t.Errorf("docker-compose.yml has %q %d times, not %d", words, got, times)
		}
	}
}

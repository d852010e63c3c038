package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDialects asks for a route of each dialect, whether the node serves it or not.
func TestDialects(t *testing.T) {
	paths := map[string]struct { // 404 where the dialect is not served
		path   string
		status int
	}{"nodered": {"/semaphore/up", http.StatusMethodNotAllowed}, "throttle": {"/peers/", http.StatusOK}, "consul": {"/v1/kv/?keys", http.StatusOK},
		"fleetlock": {"/v1/pre-reboot", http.StatusMethodNotAllowed}, "terraform": {"/terraform/a//b", http.StatusBadRequest}}
	for _, c := range []struct {
		flags  string
		served string
	}{
		{"", "nodered,throttle"},
		{"--dialects nodered,throttle,consul", "nodered,throttle,consul"},
		{"--dialects consul", "consul"},
		{"--dialects fleetlock,terraform", "fleetlock,terraform"},
		{"--dialects throttle", "throttle"},
		{"--dialects nodered", "nodered"},
		{"--dialects none", ""},
		{"--dialects=", ""},
	} {
		t.Run(c.flags, func(t *testing.T) {
			port := freePorts(t, 0, 1)
			arguments := []string{"serve", "--ephemeral", "--http", fmt.Sprintf("127.0.0.1:%d", port), "--peer", fmt.Sprintf("127.0.0.1:%d", port+1)}
			startInProcess(t.Context(), t, append(arguments, strings.Fields(c.flags)...)...).awaitLog(t, "serving")
			for _, name := range allDialects() {
				status := http.StatusNotFound
				if strings.Contains(c.served, name) {
					status = paths[name].status
				}
				if paths[name].path == "" {
					t.Fatalf("no route of %s to ask for", name)
				}
				if got, _ := get(t, fmt.Sprintf("http://127.0.0.1:%d%s", port, paths[name].path)); got != status {
					t.Errorf("%s: status %d, not %d", name, got, status)
				}
			}
		})
	}
}

// get returns status and body. It repeats the request while the node has no leader yet.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if status, body = response.StatusCode, string(text); status == http.StatusServiceUnavailable {
			return errors.New(body)
		}
		return err
	})
	return status, body
}

// TestBadDeclaration: a file that can't be declared ends the start, with one line that names the file.
func TestBadDeclaration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "throttle.toml")
	must(t, os.WriteFile(file, []byte("[semaphores]\nA = { level = 1 }\n"), 0o600))
	o := command(t, []string{"serve", "--ephemeral", "--declare", file})
	o.refused(t, "--declare", file, `semaphores."A": max is missing`)
	if o.status != 2 {
		t.Errorf("status %d", o.status)
	}
}

// TestDialectsAreInTheAccessMatrix: TestAccessMatrix serves each dialect. A dialect whose reads forget the guard would
// show names outside of a token's prefixes.
func TestDialectsAreInTheAccessMatrix(t *testing.T) {
	matrix, err := os.ReadFile("../../httpapi/access_matrix_test.go")
	must(t, err)
	for _, name := range allDialects() {
		_, served, _ := strings.Cut(string(matrix), "func withTokens")
		served, _, _ = strings.Cut(served, "\n}\n")
		if !strings.Contains(strings.ToLower(served), "with"+name+"(") {
			t.Errorf("withTokens does not serve %s", name)
		}
	}
}

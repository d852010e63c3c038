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

// get returns status and body; it asks a node that has no leader yet again.
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

// TestBadDeclarations are files that end the start, each with one line that names
// the file.
func TestBadDeclarations(t *testing.T) {
	for name, c := range map[string]struct{ text, words string }{
		"no TOML":     {"[semaphores\nA = 1\n", "no TOML"},
		"no number":   {"[semaphores]\nA = \"1\"\n", `semaphores."A"`},
		"no max":      {"[semaphores]\nA = { level = 1 }\n", "max is missing"},
		"level":       {"[semaphores]\nA = { max = 1, level = 2147483648 }\n", "2147483648"},
		"name":        {"[semaphores]\n\"\" = 1\n", "name"},
		"log level":   {"[logging.stderr]\nlevel = \"LOUD\"\n", "logging.stderr"},
		"no table":    {"semaphores = 3\n", "no table"},
		"level alone": {"[logging.stderr]\n", "level"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "throttle.toml")
			must(t, os.WriteFile(file, []byte(c.text), 0o600))
			o := command(t, []string{"serve", "--ephemeral", "--declare", file})
			o.refused(t, "--declare", file, c.words)
			if o.status != 1 {
				t.Errorf("status %d", o.status)
			}
		})
	}
}

// TestDevDeclares: the nodes of dev are ready only once the declared semaphores exist.
func TestDevDeclares(t *testing.T) {
	file := filepath.Join(t.TempDir(), "throttle.toml")
	must(t, os.WriteFile(file, []byte("[semaphores]\nA = { max = 4, level = 2 }\n"), 0o600))
	_, c, _ := startDev(t.Context(), t, 3, "--declare", file)
	for node, base := range c.bases {
		if _, body := get(t, base+"/readyz?verbose"); !strings.Contains(body, "[+] declared") {
			t.Errorf("n%d: %s", node+1, body)
		}
		if _, body := get(t, base+"/metrics"); !strings.Contains(body, `throttle_max{semaphore="A"} 4`) {
			t.Errorf("n%d has no gauge of A", node+1)
		}
	}
}

// TestDialectsAreInTheAccessMatrix: a dialect whose reads forget the guard would show names outside of a
// token's prefixes, so TestAccessMatrix has to serve each.
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

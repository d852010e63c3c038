package verbs

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/access"
)

// identity returns the identity that a token has by a file.
func identity(t *testing.T, file, secret string) *access.Identity {
	t.Helper()
	tokens, err := access.Open(file)
	must(t, err)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	found, err := tokens.Authenticate(r)
	must(t, err)
	return found.Identity
}

// TestTokenNew: the first line is the token, and the rest makes it valid.
func TestTokenNew(t *testing.T) {
	out, err := executed(newToken(), "new", "ci", "--scope", "use", "--prefix", "ci/", "--prefix", "db", "--leases", "7", "--requests-per-second", "9")
	must(t, err)
	secret, block, _ := strings.Cut(out, "\n")
	file := filepath.Join(t.TempDir(), "tokens.toml")
	must(t, os.WriteFile(file, []byte(block), 0o600))
	if id := identity(t, file, secret); id.Name != "ci" || id.Scope != access.Use || strings.Join(id.Prefixes, " ") != "ci/ db" ||
		id.Limits.Leases != 7 || id.Limits.Sessions != 0 || id.PerSecond != 9 {
		t.Errorf("%+v", id)
	}
	for _, wrong := range [][]string{nil, {"new"}, {"new", "a", "b"}, {"new", "c i"}, {"new", "ci", "--scope", "root"}, {"new", "ci", "--sessions", "-1"},
		{"new", "ci", "--scope", "admin", "--prefix", "ci/"}} {
		if out, err := executed(newToken(), wrong...); err == nil || out != "" {
			t.Errorf("%q: %q, %v", wrong, out, err)
		}
	}
}

// TestTokenNewIntoFiles: with both files the token is not printed. If the file of the token exists, its token is kept,
// or the verb fails and adds no block. The note is printed only with a new token.
func TestTokenNewIntoFiles(t *testing.T) {
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "admin.token"), filepath.Join(dir, "tokens.toml")
	arguments := []string{"new", "admin", "--scope", "admin", "--token-file", secret, "--append", file}
	for _, c := range [][2]string{{"", ""}, {"--keep --note again", ""}, {"--keep --note once --token-file " + secret + ".2", "once\n"}} {
		out, err := executed(newToken(), append(arguments, strings.Fields(c[0])...)...)
		if err != nil || out != c[1] {
			t.Fatalf("%s: %q, %v", c[0], out, err)
		}
	}
	if _, err := executed(newToken(), arguments...); err == nil {
		t.Error("a token is overwritten")
	}
	if _, err := executed(newToken(), "new", "ci", "--append", file); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(secret)
	must(t, err)
	if id := identity(t, file, strings.TrimSpace(string(drawn))); id.Name != "admin" {
		t.Errorf("%+v", id)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	if n := strings.Count(string(text), "[[token]]"); n != 3 || strings.Contains(string(text), strings.TrimSpace(string(drawn))) {
		t.Errorf("%d blocks:\n%s", n, text)
	}
	if _, err := executed(newToken(), "new", "ci", "--scope", "read", "--append", file); err == nil || !strings.Contains(err.Error(), "other rights or limits") {
		t.Errorf("a file that no node starts with: %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(text) {
		t.Errorf("%v:\n%s", err, after)
	}
	for _, path := range []string{secret, file} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

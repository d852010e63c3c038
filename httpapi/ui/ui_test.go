package ui_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/test/apitest"
)

func withConsole(cfg *apitest.Config) { cfg.HTTP.Console = true }

// withTokens asks for tokens, and knows "secret-read" and "secret-admin" by their scopes.
func withTokens(t *testing.T) func(*apitest.Config) {
	t.Helper()
	text := ""
	for _, scope := range []string{"read", "admin"} {
		sum := sha256.Sum256([]byte("secret-" + scope))
		text += fmt.Sprintf("[[token]]\nname = %q\nhash = \"sha256:%x\"\nscopes = [%q]\n", scope, sum, scope)
	}
	file := filepath.Join(t.TempDir(), "tokens.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *apitest.Config) { cfg.Exchange.Tokens = tokens }
}

func files(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	names, err := filepath.Glob("static/*")
	if err != nil || len(names) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(name)] = string(text)
	}
	return texts
}

// Each file is served with its type, as it is in the folder, under a strict policy, and
// without a token.
func TestFiles(t *testing.T) {
	a := apitest.New(t, withConsole, withTokens(t))
	texts := files(t)
	texts[""], texts["api"] = texts["index.html"], texts["api.html"]
	for name, text := range texts {
		got := a.Do("GET /ui/"+name, "").Is(200)
		if got.Text != text {
			t.Errorf("/ui/%s is another text", name)
		}
		kind := map[string]string{"": "text/html", ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[filepath.Ext(name)]
		if !strings.HasPrefix(got.Header.Get("Content-Type"), kind) {
			t.Errorf("/ui/%s is %s", name, got.Header.Get("Content-Type"))
		}
		policy := got.Header.Get("Content-Security-Policy")
		for _, needed := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy+";", needed+";") {
				t.Errorf("/ui/%s: the policy lacks %s: %s", name, needed, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("/ui/%s: policy %s", name, policy)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if got.Header.Get(header) != want {
				t.Errorf("/ui/%s: %s is %q", name, header, got.Header.Get(header))
			}
		}
		if head := a.Do("HEAD /ui/"+name, "").Is(200); head.Header.Get("Content-Security-Policy") != policy {
			t.Errorf("HEAD /ui/%s has another policy", name)
		}
	}
	a.Do("GET /ui/nosuch.js", "").RefusedWith(404, "unknown-route")
	a.Do("GET /ui/..%2Fui.go", "").RefusedWith(404, "unknown-route")
	a.Do("POST /ui/", "").RefusedWith(405, "method-not-allowed")
}

// A browser that opens the node's address gets to the console; other clients see no change.
func TestRoot(t *testing.T) {
	const browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"
	for _, open := range []func(*apitest.Config){withConsole, withTokens(t)} {
		a := apitest.New(t, withConsole, open)
		for _, line := range []string{"GET /", "HEAD /", "GET /ui"} {
			if got := a.Do(line, "", browser).Is(302); got.Header.Get("Location") != "/ui/" {
				t.Errorf("%s leads to %q", line, got.Header.Get("Location"))
			}
		}
	}
	a := apitest.New(t, withConsole)
	a.Do("GET /", "").RefusedWith(404, "unknown-route")
	a.Do("GET /", "", "Accept: */*").RefusedWith(404, "unknown-route")
	a.Do("POST /", "", browser).RefusedWith(404, "unknown-route")
	a.Do("GET /nosuch", "", browser).RefusedWith(404, "unknown-route")
	without := apitest.New(t)
	for _, line := range []string{"GET /", "GET /ui", "GET /ui/", "GET /ui/app.js"} {
		without.Do(line, "", browser).RefusedWith(404, "unknown-route")
	}
}

// A browser asks for a password when it is offered Basic authentication: the
// page is not.
func TestNoBasicForThePage(t *testing.T) {
	a := apitest.New(t, withConsole, withTokens(t))
	if got := a.Do("GET /v1/cluster", "").Is(401); len(got.Header["Www-Authenticate"]) != 2 {
		t.Errorf("a client is offered %v", got.Header["Www-Authenticate"])
	}
	got := a.Do("GET /v1/cluster", "", "X-Requested-With: XMLHttpRequest").Is(401)
	if forms := got.Header["Www-Authenticate"]; len(forms) != 1 || !strings.HasPrefix(forms[0], "Bearer") {
		t.Errorf("the page is offered %v", forms)
	}
	a.Do("GET /v1/cluster", "", "X-Requested-With: XMLHttpRequest", "Authorization: Bearer secret-read").Is(200)
}

// The page is small, asks no other machine, and makes no markup of a text.
func TestSources(t *testing.T) {
	bytes := 0
	for name, text := range files(t) {
		bytes += len(text)
		text = strings.ReplaceAll(text, `"http://www.w3.org/2000/svg"`, "")
		for _, bad := range []string{`https?://`, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser`, `localStorage|document\.cookie|indexedDB`, `\bstyle="|\bon[a-z]+="`, `@import|\burl\(`} {
			if found := regexp.MustCompile(bad).FindString(text); found != "" {
				t.Errorf("%s has %s", name, found)
			}
		}
	}
	t.Logf("%d bytes in all", bytes)
	if bytes > 150_000 {
		t.Errorf("%d bytes, more than 150,000", bytes)
	}
}

package access_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/httpapi/access"
)

// secretBlock is a block for the token "secret-NAME".
func secretBlock(name string, lines ...string) string {
	return "[[token]]\nname = \"" + name + "\"\nhash = \"" + hashOf("secret-"+name) + "\"\n" + strings.Join(lines, "\n") + "\n"
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func open(t *testing.T, text string) *access.Tokens {
	t.Helper()
	tokens, err := access.Open(write(t, filepath.Join(t.TempDir(), "tokens.toml"), text))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func withHeader(values ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Authorization"] = values
	return r
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

const scopeUse = `scopes = ["use"]`

func TestAuthenticate(t *testing.T) {
	tokens := open(t, secretBlock("ci", scopeUse)+secretBlock("db", scopeUse))
	for _, c := range []struct {
		headers []string
		want    string
		err     error
	}{
		{nil, "", access.ErrNoToken},
		{[]string{"Bearer secret-ci"}, "ci", nil},
		{[]string{"bearer  secret-db "}, "db", nil},
		{[]string{basic("", "secret-ci")}, "ci", nil},
		{[]string{basic("anyone", "secret-db")}, "db", nil},
		{[]string{basic("secret-ci", "")}, "ci", nil},
		{[]string{basic("secret-ci", "wrong")}, "", access.ErrUnknownToken},
		{[]string{"Bearer secret-c"}, "", access.ErrUnknownToken},
		{[]string{"Bearer secret-ci2"}, "", access.ErrUnknownToken},
		{[]string{"Bearer " + hashOf("secret-ci")}, "", access.ErrUnknownToken},
		{[]string{"Bearer ci"}, "", access.ErrUnknownToken},
		{[]string{"Bearer "}, "", access.ErrUnknownToken},
		{[]string{""}, "", access.ErrUnknownToken},
		{[]string{"secret-ci"}, "", access.ErrUnknownToken},
		{[]string{"Basic secret-ci"}, "", access.ErrUnknownToken},
		{[]string{"Digest secret-ci"}, "", access.ErrUnknownToken},
		{[]string{"Bearer secret-ci", "Bearer secret-ci"}, "", access.ErrUnknownToken},
	} {
		r := withHeader(c.headers...)
		if c.headers == nil {
			delete(r.Header, "Authorization")
		}
		found, err := tokens.Authenticate(r)
		if !errors.Is(err, c.err) || err == nil && found.Identity.Name != c.want {
			t.Errorf("%q: %+v, %v", c.headers, found, err)
		}
	}
}

// TestEmptyTokenIsNeverValid: a header without a token, or one that can't be read, stands
// for no identity, even if a table has the hash of the empty text.
func TestEmptyTokenIsNeverValid(t *testing.T) {
	for _, headers := range [][]string{{"Bearer "}, {""}, {"Digest x"}, {basic("", "")}, {"Bearer a", "Bearer a"}} {
		if found, err := access.OfTokens("").Authenticate(withHeader(headers...)); !errors.Is(err, access.ErrUnknownToken) {
			t.Errorf("%q: %+v, %v", headers, found, err)
		}
	}
	if _, err := access.OfTokens("a").Authenticate(withHeader("Bearer a")); err != nil {
		t.Errorf("another token: %v", err)
	}
}

// TestCertificateIsAName: a certificate stands for the identity of its common name, and a
// token that is given decides.
func TestCertificateIsAName(t *testing.T) {
	tokens := open(t, secretBlock("ci", scopeUse)+"[[token]]\nname = \"cd\"\n"+scopeUse+"\n")
	with := func(name string) *http.Request {
		r := withHeader()
		delete(r.Header, "Authorization")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}}
		return r
	}
	for _, name := range []string{"ci", "cd"} {
		if found, err := tokens.Authenticate(with(name)); err != nil || found.Identity.Name != name {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	for _, name := range []string{"other", ""} {
		if found, err := tokens.Authenticate(with(name)); !errors.Is(err, access.ErrNoToken) {
			t.Errorf("%q: %+v, %v", name, found, err)
		}
	}
	r := with("cd")
	r.Header.Set("Authorization", "Bearer secret-ci")
	if found, err := tokens.Authenticate(r); err != nil || found.Identity.Name != "ci" {
		t.Errorf("beside a token: %+v, %v", found, err)
	}
	r.Header.Set("Authorization", "Bearer wrong")
	if found, err := tokens.Authenticate(r); !errors.Is(err, access.ErrUnknownToken) {
		t.Errorf("beside a wrong token: %+v, %v", found, err)
	}
}

// TestReload: credentials that a new file has unchanged go on; the others end. A broken
// file changes nothing, and is shown.
func TestReload(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "tokens.toml"),
		secretBlock("stays", scopeUse, "requests_per_second = 1")+secretBlock("goes", scopeUse)+secretBlock("changes", scopeUse)+
			"[[token]]\nname = \"cert\"\n"+scopeUse+"\n")
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) *access.Credential {
		t.Helper()
		found, err := tokens.Authenticate(withHeader("Bearer secret-" + name))
		if err != nil {
			t.Fatal(name, err)
		}
		return found
	}
	stays, goes, changes := find("stays"), find("goes"), find("changes")
	if !stays.Identity.TakesRequest() || stays.Identity.TakesRequest() {
		t.Error("the rate is not one a second")
	}
	for _, broken := range []string{"", "[[token]]\n", secretBlock("stays", "scopes = []")} {
		write(t, path, broken)
		if err := tokens.Reload(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", broken, err)
		}
		if find("goes") != goes || metrics(t, tokens)["signalbox_tokens_file_broken"] != 1 {
			t.Errorf("%q took effect, or is not shown", broken)
		}
	}
	write(t, path, secretBlock("changes", `scopes = ["read"]`)+secretBlock("stays", scopeUse, "requests_per_second = 1"))
	if err := tokens.Reload(); err != nil {
		t.Fatal(err)
	}
	if metrics(t, tokens)["signalbox_tokens_file_broken"] != 0 || metrics(t, tokens)["signalbox_tokens"] != 2 {
		t.Error("the metrics are not those of the file")
	}
	if again := find("stays"); again != stays || again.Identity.TakesRequest() || stays.Ended().Err() != nil {
		t.Error("a token that stays has ended, or has its rate refilled")
	}
	for name, c := range map[string]*access.Credential{"goes": goes, "changes": changes} {
		if cause := context.Cause(c.Ended()); !errors.Is(cause, access.ErrUnknownToken) {
			t.Errorf("%s: %v", name, cause)
		}
	}
	if got := find("changes").Identity.Scope; got != access.Read {
		t.Errorf("scope %v", got)
	}
	if _, err := tokens.Authenticate(withHeader("Bearer secret-goes")); !errors.Is(err, access.ErrUnknownToken) {
		t.Error(err)
	}
}

// TestReplaceToken: two tokens of a name are one identity, and either may go alone.
func TestReplaceToken(t *testing.T) {
	second := strings.Replace(secretBlock("ci", scopeUse), hashOf("secret-ci"), hashOf("secret-next"), 1)
	path := write(t, filepath.Join(t.TempDir(), "tokens.toml"), secretBlock("ci", scopeUse)+second)
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	old, err := tokens.Authenticate(withHeader("Bearer secret-ci"))
	next, err2 := tokens.Authenticate(withHeader("Bearer secret-next"))
	if errors.Join(err, err2) != nil || old.Identity != next.Identity {
		t.Fatalf("%+v and %+v: %v", old, next, errors.Join(err, err2))
	}
	write(t, path, second)
	if err := tokens.Reload(); err != nil || old.Ended().Err() == nil || next.Ended().Err() != nil {
		t.Errorf("%v, %v, %v", err, old.Ended().Err(), next.Ended().Err())
	}
}

// TestWatch: a change is taken at the second look that finds it, so that half a file
// ends no token; at once when it is asked for.
func TestWatch(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "tokens.toml"), secretBlock("ci", scopeUse))
	synctest.Test(t, func(t *testing.T) {
		tokens, err := access.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		valid := func() string {
			found := ""
			for _, name := range []string{"ci", "db"} {
				if _, err := tokens.Authenticate(withHeader("Bearer secret-" + name)); err == nil {
					found += name
				}
			}
			return found
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		now, reloads := make(chan os.Signal), make(chan error, 9)
		go tokens.Watch(ctx, now, func(err error) { reloads <- err })
		look := func() {
			time.Sleep(access.WatchEvery) // virtual
			synctest.Wait()
		}
		ok := func(want string, times int) {
			t.Helper()
			if got := valid(); got != want || len(reloads) != times {
				t.Errorf("valid %q, want %q; reloaded %d times, want %d", got, want, len(reloads), times)
			}
		}
		time.Sleep(access.WatchEvery / 2) // virtual
		look()
		write(t, path, "[[token]]\nna")
		look()
		ok("ci", 0)
		write(t, path, secretBlock("db", scopeUse))
		look()
		ok("ci", 0)
		look()
		ok("db", 1)
		look()
		ok("db", 1)
		write(t, path, secretBlock("ci", scopeUse))
		now <- os.Interrupt
		synctest.Wait()
		ok("ci", 2)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			look()
		}
		ok("ci", 3)
		if changed, reread, gone := <-reloads, <-reloads, <-reloads; changed != nil || reread != nil || gone == nil {
			t.Error("a file that is gone is not reported")
		}
	})
}

// metrics returns the metrics of the tokens, each by its name and label.
func metrics(t *testing.T, tokens *access.Tokens) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(tokens.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			found[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

// TestCount: each refusal is counted by its reason.
func TestCount(t *testing.T) {
	tokens := open(t, secretBlock("ci", scopeUse))
	for _, err := range []error{access.ErrNoToken, access.ErrUnknownToken, access.ErrRate, &access.Denied{Needs: access.Admin},
		&access.Denied{Semaphore: "x"}, &access.Denied{AllNames: true}} {
		tokens.Count(err)
	}
	got := metrics(t, tokens)
	for reason, want := range map[string]float64{"no-token": 1, "unknown-token": 1, "rate": 1, "scope": 1, "prefix": 2} {
		if n := got["signalbox_http_denied_total "+reason]; n != want {
			t.Errorf("%s: %v, want %v", reason, n, want)
		}
	}
}

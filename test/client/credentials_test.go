package client_test

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/test/clienttest"
)

// guarded is a node, over HTTPS, that takes one token at a time.
type guarded struct {
	*httptest.Server
	ca    string // a file
	takes atomic.Pointer[string]
	// refused counts the requests with another token.
	refused atomic.Int64
}

func newGuarded(t *testing.T, handler http.Handler, token string) *guarded {
	t.Helper()
	g := &guarded{ca: filepath.Join(t.TempDir(), "ca.pem")}
	g.takes.Store(&token)
	g.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+*g.takes.Load() {
			handler.ServeHTTP(w, r)
			return
		}
		g.refused.Add(1)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"status":401,"code":"unauthenticated","detail":"The token is not valid."}`))
	}))
	t.Cleanup(g.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw})
	must(t, os.WriteFile(g.ca, bundle, 0o600))
	return g
}

// A lease outlives the change of its client's token: the file is read again, and the
// request repeated, when a node refuses the one before.
func TestTokenFileChangesUnderALease(t *testing.T) {
	cluster := clienttest.Start(t)
	(&node{t, t.Context(), cluster.Client()}).put("db", 1)
	g := newGuarded(t, cluster.Handler(), "tok-1")
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	}
	write("tok-1")
	c, err := client.New(client.Config{Addresses: []string{g.URL}, TokenFile: file, CA: g.ca})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := c.Acquire(ctx, "db", client.TTL(600*time.Millisecond))
	must(t, err)
	before, second := lease.Deadline(), "tok-2"
	write(second)
	g.takes.Store(&second)
	for lease.Err() == nil && !lease.Deadline().After(before.Add(600*time.Millisecond)) { // renewed with it
		select {
		case <-lease.Lost():
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}

	third, refused := "tok-3", g.refused.Load()
	g.takes.Store(&third)
	_, err = c.Get(ctx, "db")
	if !errors.Is(err, client.ErrUnauthenticated) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "tok-") {
		t.Errorf("a token that is not valid any more: %v", err)
	}
	if n := g.refused.Load() - refused; n != 1 {
		t.Errorf("the node was asked %d times", n)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// An error names the source of the credentials, and no error or log has the token.
func TestRefusedCredentials(t *testing.T) {
	g := newGuarded(t, clienttest.Start(t).Handler(), "tok-right")
	var log strings.Builder
	for _, c := range []struct {
		cfg  client.Config
		want string
	}{
		{client.Config{CA: g.ca}, "(sent: no token)"},
		{client.Config{CA: g.ca, Token: "tok-wrong"}, "(sent: the token that it was given)"},
		{client.Config{HTTPClient: g.Client(), Token: "tok-wrong"}, "(sent: the token that it was given)"},
		{client.Config{HTTPClient: g.Client()}, "The token is not valid."},
		{client.Config{HTTPClient: g.Client(), Addresses: []string{strings.Replace(g.URL, "//", "//tok-user@", 1)}}, "The token is not valid."},
		{client.Config{Addresses: []string{strings.Replace(g.URL, "//", "//tok-user@", 1)}, GiveUpAfter: time.Millisecond}, "authority"},
	} {
		if c.cfg.Addresses == nil {
			c.cfg.Addresses = []string{g.URL}
		}
		c.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		made, err := client.New(c.cfg)
		must(t, err)
		_, err = made.Up(t.Context(), "db", 1)
		var e *client.Error
		if !strings.HasSuffix(err.Error(), c.want) || c.want != "authority" && (!errors.As(err, &e) || e.Status != 401 || !errors.Is(err, client.ErrUnauthenticated)) {
			t.Errorf("%v, wanted %s", err, c.want)
		}
		if text := err.Error() + log.String(); strings.Contains(text, "tok-") {
			t.Errorf("it shows the token: %s", text)
		}
		if err := made.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigOfCredentials(t *testing.T) {
	for name, cfg := range map[string]client.Config{
		"plain HTTP":          {Addresses: []string{"https://n1", "n2:8701"}, Token: "tok"},
		"a user, plain HTTP":  {Addresses: []string{"https://n1", "http://tok-user@n2:8701"}},
		"no such file":        {Addresses: []string{"https://n1"}, TokenFile: "no/such/file"},
		"no authorities":      {Addresses: []string{"https://n1"}, CA: "no/such/file"},
		"no key":              {Addresses: []string{"https://n1"}, CertFile: "file"},
		"a client of its own": {Addresses: []string{"https://n1"}, HTTPClient: &http.Client{}, CA: "file"},
	} {
		if _, err := client.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "signalbox: ") || strings.Contains(err.Error(), "tok-") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cfg := range map[string]client.Config{
		"HTTPS":                {Addresses: []string{"https://n1"}, Token: "tok"},
		"loopback":             {Addresses: []string{"127.0.0.1:8701"}, Token: "tok"},
		"a user over HTTPS":    {Addresses: []string{"https://tok-user@n1"}},
		"explicitly over HTTP": {Addresses: []string{"n1:8701"}, Token: "tok", InsecureHTTP: true},
		"a user over HTTP":     {Addresses: []string{"http://tok-user@n1"}, InsecureHTTP: true},
	} {
		if _, err := client.New(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While the operator gives one node after the other a new file of tokens, or HTTPS, a
// lease is renewed by those that take the client's requests.
func TestLeaseOutlivesNodesThatRefuseItsToken(t *testing.T) {
	for name, f := range map[string]fault{
		"token": {status: 401, code: "unauthenticated"},
		"HTTPS": {status: 400, text: "Client sent an HTTP request to an HTTPS server."},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 1)
				lease, err := b.session(9*time.Second).Acquire(b.ctx, "db")
				b.ok(err)
				turn := 0
				b.net.follow(func(s sent, nth int) fault {
					if s.host == []string{"n1:8701", "n2:8701", "n3:8701"}[turn] {
						return f
					}
					return fault{}
				})
				for range 9 {
					time.Sleep(9 * time.Second) // virtual
					b.net.mu.Lock()
					turn = (turn + 1) % 3
					b.net.mu.Unlock()
				}
				b.ok(lease.Err())
			})
		})
	}
}

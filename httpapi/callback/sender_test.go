package callback

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// listener is a server on 127.0.0.1 that counts who calls.
type listener struct {
	*httptest.Server
	port  string
	calls atomic.Int64
	last  atomic.Pointer[call]
}

type call struct {
	method, path, body string
	header             http.Header
}

func listen(t *testing.T, answer http.HandlerFunc) *listener {
	t.Helper()
	l := &listener{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		l.last.Store(&call{r.Method, r.RequestURI, string(body), r.Header})
		l.calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(l.Close)
	_, l.port, _ = net.SplitHostPort(l.Listener.Addr().String())
	return l
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func sender(t *testing.T, allowed ...string) *Sender {
	t.Helper()
	s, err := New(allowed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNotifySends(t *testing.T) {
	l := listen(t, status(204))
	s := sender(t, "127.0.0.1:"+l.port)
	for want, n := range map[string]fsm.NoticeView{
		`{"id":17,"name":"a <b>","value":3,"reason":"available"}`: {ID: 17, Semaphore: "a <b>", Available: 3},
		`{"id":18,"name":"c","value":null,"reason":"deleted"}`:    {ID: 18, Semaphore: "c", Deleted: true},
	} {
		n.URL = l.URL + "/hook?x=1"
		if err := s.Notify(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		got := l.last.Load()
		if got.method != "POST" || got.path != "/hook?x=1" || got.body != want || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("sent %+v, want %s", got, want)
		}
		if sent := got.header.Get("Idempotency-Key"); sent != key(n) {
			t.Errorf("the key is %q", sent)
		}
	}
}

// The key of a notice is the same at each attempt, from each node and in each version. Other notices, and notices of
// other clusters, have other keys.
func TestKey(t *testing.T) {
	n := fsm.NoticeView{ID: 17, Semaphore: "jobs", Epoch: 3, URL: "http://hooks.example/", Count: 1, Available: 2, DueMS: 61_234}
	first := key(n)
	if first != "signalbox-notice-17-43763dc8cd8a" {
		t.Errorf("the key is %q: a receiver would take a repeat after an upgrade for another notice", first)
	}
	later := n
	later.Available, later.Deleted = 0, true
	if again := key(later); again != first {
		t.Errorf("%q, then %q", first, again)
	}
	seen := map[string]bool{first: true}
	for what, change := range map[string]func(*fsm.NoticeView){
		"id":        func(n *fsm.NoticeView) { n.ID++ },
		"semaphore": func(n *fsm.NoticeView) { n.Semaphore = `jobs" "` },
		"epoch":     func(n *fsm.NoticeView) { n.Epoch++ },
		"address":   func(n *fsm.NoticeView) { n.URL += "?b" },
		"time":      func(n *fsm.NoticeView) { n.DueMS++ },
	} {
		other := n
		change(&other)
		if k := key(other); seen[k] {
			t.Errorf("another %s, and the key is %q again", what, k)
		} else {
			seen[k] = true
		}
	}
}

// The log names the host of the client's address, and no other part of it.
func TestErrorsKeepTheAddress(t *testing.T) {
	failing, gone := listen(t, status(500)), listen(t, status(200))
	gone.Close()
	for _, l := range []*listener{failing, gone} {
		err := sender(t, "127.0.0.1:"+l.port).Notify(t.Context(), fsm.NoticeView{ID: 1, URL: l.URL + "/hook?token=secret"})
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1:"+l.port) || strings.Contains(err.Error(), "hook") {
			t.Errorf("the error is %v", err)
		}
	}
}

// All spellings of a host count as one host, so that a client can't get more attempts at a time by spelling it
// differently. Host returns "" for an address that may not be called.
func TestHost(t *testing.T) {
	s := sender(t, "hooks.example", "hooks.example:8080", "10.1.0.0/16", "[::1]:9000", "127.0.0.1:9000")
	for host, addresses := range map[string][]string{
		"hooks.example:80":   {"http://hooks.example", "http://HOOKS.example/a?b", "http://hooks.example:80/", "http://hooks.example:0080/"},
		"hooks.example:443":  {"https://hooks.example/", "https://Hooks.Example:443/"},
		"hooks.example:8080": {"http://hooks.example:8080/", "https://hooks.example:08080/"},
		"10.1.0.7:80":        {"http://10.1.0.7/", "http://[::ffff:10.1.0.7]/", "http://[::ffff:a01:7]:80/"},
		"127.0.0.1:9000":     {"http://127.0.0.1:9000/", "http://[::FFFF:127.0.0.1]:9000/"},
		"[::1]:9000":         {"http://[::1]:9000/", "http://[0:0:0:0:0:0:0:1]:9000/"},
		"":                   {"http://evil.example/", "ftp://hooks.example/", "hooks.example", "http://hooks.example:x/"},
	} {
		for _, address := range addresses {
			if got := s.Host(address); got != host {
				t.Errorf("%s is %q, want %q", address, got, host)
			}
		}
	}
}

// Only 2xx counts as delivered, and no redirect is followed.
func TestNotifyStatuses(t *testing.T) {
	target := listen(t, status(200))
	for code, fine := range map[int]bool{200: true, 201: true, 204: true, 299: true, 300: false, 301: false, 302: false, 303: false, 304: false, 307: false, 308: false, 400: false, 404: false, 500: false, 503: false} {
		l := listen(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", target.URL)
			w.WriteHeader(code)
		})
		s := sender(t, "127.0.0.1:"+l.port, "127.0.0.1:"+target.port)
		if err := s.Notify(t.Context(), fsm.NoticeView{ID: 1, URL: l.URL}); (err == nil) != fine {
			t.Errorf("status %d: %v", code, err)
		}
		if l.calls.Load() != 1 {
			t.Errorf("status %d: %d calls", code, l.calls.Load())
		}
	}
	if target.calls.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// The address is checked after the name is resolved. A listed name that leads to this host is refused, unless the list
// has the address of this host as well.
func TestNotifyAfterResolving(t *testing.T) {
	l := listen(t, status(200))
	url := "http://localhost:" + l.port
	for _, c := range []struct {
		fine    bool
		allowed []string
	}{
		{false, []string{"localhost:" + l.port}},
		{false, []string{"localhost:" + l.port, "127.0.0.2", "10.0.0.0/8"}},
		{false, []string{"localhost:" + l.port, "127.0.0.1:1", "[::1]:1"}},
		{true, []string{"localhost:" + l.port, "127.0.0.1"}},
		{true, []string{"localhost:" + l.port, "127.0.0.0/8:" + l.port}},
	} {
		before := l.calls.Load()
		s := sender(t, c.allowed...)
		if err := s.Check(url); err != nil {
			t.Fatal(err)
		}
		err := s.Notify(t.Context(), fsm.NoticeView{ID: 1, URL: url})
		if called := l.calls.Load() > before; (err == nil) != c.fine || called != c.fine {
			t.Errorf("%v: %v, called: %v", c.allowed, err, called)
		}
		if !c.fine && !strings.Contains(err.Error(), "neither public nor in the list") {
			t.Errorf("%v: %v", c.allowed, err)
		}
	}
}

// No spelling of this host's address is called, whatever the system's resolver makes of it. The check is repeated when
// the notice is sent: the leader may have another list than the node that stored it.
func TestNotifyLoopbackSpellings(t *testing.T) {
	l := listen(t, status(200))
	for _, host := range []string{"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
		"0", "0.0.0.0", "localhost", "LOCALHOST", "localhost.", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"} {
		if err := sender(t, "hooks.example:"+l.port).Notify(t.Context(), fsm.NoticeView{ID: 1, URL: "http://" + host + ":" + l.port}); err == nil {
			t.Errorf("%s was called", host)
		}
		// Send without the check of the list, to see that the address alone is refused too.
		s := sender(t, "hooks.example")
		request, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+host+":"+l.port, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.send(request); err == nil {
			t.Errorf("%s was dialled", host)
		}
	}
	if l.calls.Load() != 0 {
		t.Errorf("%d calls arrived", l.calls.Load())
	}
}

// A proxy of the environment would resolve and dial without the checks of the list.
func TestNotifyUsesNoProxy(t *testing.T) {
	proxy := listen(t, status(200))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	if transport := sender(t).client.Transport.(*http.Transport); transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
	s := sender(t, "localhost:1", "127.0.0.1:"+proxy.port)
	if err := s.Notify(t.Context(), fsm.NoticeView{ID: 1, URL: "http://localhost:1/"}); err == nil || proxy.calls.Load() != 0 {
		t.Errorf("%v, %d calls at the proxy", err, proxy.calls.Load())
	}
}

// An attempt ends with its context, even if the other side never replies.
func TestNotifyEndsWithContext(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	l := listen(t, func(http.ResponseWriter, *http.Request) {
		close(reached)
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	began := time.Now()
	err := sender(t, "127.0.0.1:"+l.port).Notify(ctx, fsm.NoticeView{ID: 1, URL: l.URL})
	if !errors.Is(err, context.Canceled) || time.Since(began) > sendTimeout {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// A notice counts as delivered once the headers of the reply have come. An endless body is not read to its end.
func TestNotifyBoundsTheAnswer(t *testing.T) {
	ended := make(chan int)
	l := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		part, written := make([]byte, 32<<10), 0
		for {
			n, err := w.Write(part)
			if written += n; err != nil {
				ended <- written
				return
			}
		}
	})
	if err := sender(t, "127.0.0.1:"+l.port).Notify(t.Context(), fsm.NoticeView{ID: 1, URL: l.URL}); err != nil {
		t.Error(err)
	}
	<-ended // the connection was closed: the other side can't write any more
	head := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("a", 2*maxHead))
	})
	if err := sender(t, "127.0.0.1:"+head.port).Notify(t.Context(), fsm.NoticeView{ID: 1, URL: head.URL}); err == nil {
		t.Error("a head of twice the limit was taken")
	}
}

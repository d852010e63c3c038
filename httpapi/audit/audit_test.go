package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/httpapi/audit"
)

// TestLine pins the members of a line: files are kept for years, and read by programs.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sink{}
		log := open(t, audit.Config{Path: audit.Stderr, Stderr: out, Node: "n1"})
		log.Write(audit.Record{Index: 7, Identity: "ci", Remote: "192.0.2.1", Request: "r1", Operation: "revoke", Semaphore: "ci/<a>", Session: "18446744073709551615",
			Outcome: "ok", Reason: "why", Replayed: true})
		log.Write(audit.Record{Operation: "acquire-many", Semaphores: []string{"a", "b"}, Outcome: "forbidden"})
		log.Write(audit.Record{Operation: "add-member", Member: "n4", Outcome: "ok"})
		log.Close()
		want := `{"time":"2000-01-01T00:00:00Z","node":"n1","index":7,"identity":"ci","remote":"192.0.2.1","request":"r1","operation":"revoke","semaphore":"ci/<a>","session":"18446744073709551615","outcome":"ok","reason":"why","replayed":true}
{"time":"2000-01-01T00:00:00Z","node":"n1","operation":"acquire-many","semaphores":["a","b"],"outcome":"forbidden"}
{"time":"2000-01-01T00:00:00Z","node":"n1","operation":"add-member","member":"n4","outcome":"ok"}
`
		if got := out.String(); got != want {
			t.Errorf("%s\nwant:\n%s", got, want)
		}
	})
}

// sink is a file whose writes can be held, or fail.
type sink struct {
	held chan struct{} // nil: not held

	mu   sync.Mutex
	fail error
	text bytes.Buffer
}

func (s *sink) Write(data []byte) (int, error) {
	if s.held != nil {
		<-s.held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		s.text.Write(data[:len(data)/2])
		return len(data) / 2, s.fail
	}
	return s.text.Write(data)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func open(t *testing.T, config audit.Config) *audit.Log {
	t.Helper()
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	log, err := audit.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// counted returns the lines that were taken and those that were dropped.
func counted(t *testing.T, log *audit.Log) (lines, dropped int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(log.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n := int(f.GetMetric()[0].GetCounter().GetValue())
		if strings.Contains(f.GetName(), "dropped") {
			dropped = n
		} else {
			lines = n
		}
	}
	return lines, dropped
}

// TestWriteNeverBlocks: while the file hangs, lines wait in a bounded buffer; those beyond
// it are dropped and counted, and the file says how many, when it goes on.
func TestWriteNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sink{held: make(chan struct{})}
		log := open(t, audit.Config{Path: audit.Stderr, Stderr: out, Node: "n1"})
		const all = 10_000
		long := strings.Repeat("x", 1000)
		for range all { // of more than 1 KB
			log.Write(audit.Record{Operation: "put", Semaphore: long, Outcome: "ok"})
		}
		lines, dropped := counted(t, log)
		if lines+dropped != all || dropped < all/4 || lines < 1000 {
			t.Errorf("%d lines, %d dropped", lines, dropped)
		}
		close(out.held)
		synctest.Wait()
		log.Write(audit.Record{Operation: "delete", Outcome: "ok"})
		log.Close()
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		var note struct{ Dropped int }
		if err := json.Unmarshal([]byte(got[len(got)-2]), &note); err != nil || note.Dropped != dropped || len(got) != lines+2 {
			t.Errorf("%d lines, before the last %q, want %d dropped: %v", len(got), got[len(got)-2], dropped, err)
		}
	})
}

// TestCloseIsBounded: a file that hangs for ever does not hold the node up.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sink{held: make(chan struct{})}
		log := open(t, audit.Config{Path: audit.Stderr, Stderr: out})
		log.Write(audit.Record{Operation: "put"})
		began := time.Now()
		log.Close()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		log.Write(audit.Record{Operation: "put"})
		if _, dropped := counted(t, log); dropped != 1 {
			t.Errorf("%d dropped after Close", dropped)
		}
		close(out.held)
	})
}

// TestFailedWrites: a full disk costs the lines of that time, counted and logged once, and
// no line after it is mixed with half of another.
func TestFailedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logged := &sink{fail: errors.New("no space")}, &sink{}
		log := open(t, audit.Config{Path: audit.Stderr, Stderr: out, Logger: hclog.New(&hclog.LoggerOptions{Output: logged})})
		for range 3 {
			log.Write(audit.Record{Operation: "put"})
			synctest.Wait()
		}
		out.mu.Lock()
		out.fail = nil
		out.mu.Unlock()
		log.Write(audit.Record{Operation: "delete"})
		log.Close()
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := got[len(got)-2:]; !strings.HasSuffix(last[0], `"dropped":3}`) || !json.Valid([]byte(last[1])) {
			t.Errorf("%q", last)
		}
		if n := strings.Count(logged.String(), "no space"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// TestFile: a file is its owner's alone, is appended to, and is made anew after it was
// renamed.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for range 2 {
		log := open(t, audit.Config{Path: path})
		log.Write(audit.Record{Operation: "put"})
		log.Close()
	}
	log := open(t, audit.Config{Path: path})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	log.Reopen()
	log.Write(audit.Record{Operation: "delete"})
	log.Close()
	for file, want := range map[string]int{path + ".1": 2, path: 1} {
		text, err := os.ReadFile(file)
		if err != nil || strings.Count(string(text), "\n") != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if _, err := audit.Open(audit.Config{Path: t.TempDir()}); err == nil {
		t.Error("a folder is taken for a file")
	}
}

func TestRemoteAddress(t *testing.T) {
	proxies, err := audit.ParseProxies([]string{"10.0.0.0/8", "192.0.2.9", "2001:db8::/32"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, forwardedFor, forwarded, want string }{
		{"198.51.100.1:9", "", "", "198.51.100.1"},
		{"198.51.100.1:9", "203.0.113.7", "", "198.51.100.1"}, // a stranger's word
		{"10.1.2.3:9", "203.0.113.7", "", "203.0.113.7"},
		{"10.1.2.3:9", "1.1.1.1, 203.0.113.7", "", "203.0.113.7"}, // the first is the client's own claim
		{"10.1.2.3:9", "203.0.113.7, 192.0.2.9,10.9.9.9", "", "203.0.113.7"},
		{"10.1.2.3:9", "10.9.9.9", "", "10.9.9.9"},
		{"10.1.2.3:9", "", "", "10.1.2.3"},
		{"10.1.2.3:9", "unknown", "", "10.1.2.3"},
		{"10.1.2.3:9", "203.0.113.7, junk, 10.9.9.9", "", "10.9.9.9"},
		{"10.1.2.3:9", "203.0.113.7:4711", "", "203.0.113.7"},
		{"[2001:db8::1]:9", "[2001:db9::7]:4711", "", "2001:db9::7"},
		{"[::ffff:10.1.2.3]:9", "203.0.113.7", "", "203.0.113.7"},
		{"10.1.2.3:9", "", `for=203.0.113.7;proto=https`, "203.0.113.7"},
		{"10.1.2.3:9", "", `by=x; For="[2001:db9::7]:4711"`, "2001:db9::7"},
		{"10.1.2.3:9", "", `for=1.1.1.1, for=203.0.113.7`, "203.0.113.7"},
		{"10.1.2.3:9", "", `for=_hidden`, "10.1.2.3"},
		{"10.1.2.3:9", "203.0.113.7", `for=1.1.1.1`, "10.1.2.3"}, // one of the two may be the client's
		{"10.1.2.3:9", "203.0.113.7", `for=203.0.113.7`, "203.0.113.7"},
		{"10.1.2.3:9", "unknown", `for=203.0.113.7`, "10.1.2.3"},
		{"@", "203.0.113.7", "", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		for name, value := range map[string]string{"X-Forwarded-For": c.forwardedFor, "Forwarded": c.forwarded} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := proxies.RemoteOf(r); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for _, wrong := range []string{"proxy.example", "10.0.0.0/33", ""} {
		if _, err := audit.ParseProxies([]string{wrong}); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

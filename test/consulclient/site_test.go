package consulclient

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// soon bounds what takes no time but on a busy machine.
const soon = 10 * time.Second

// site is one node for one test, and the names that the test alone uses.
type site struct {
	*testing.T
	*api.Client
	cluster *cluster
	node    int
	prefix  string // ends in a slash
}

// session opens a session that ends with the test.
func (s *site) session(entry api.SessionEntry) string {
	s.Helper()
	id, _, err := s.Session().CreateNoChecks(&entry, nil)
	s.ok(err)
	s.Cleanup(func() { _, _ = s.Session().Destroy(id, nil) })
	return id
}

// lock returns a lock with a session that lives until the test ends.
func (s *site) lock(key string) (lock *api.Lock, session string) {
	s.Helper()
	session = s.session(api.SessionEntry{Name: api.DefaultLockSessionName, TTL: api.DefaultLockSessionTTL, Behavior: api.SessionBehaviorDelete})
	return s.lockOf(api.LockOptions{Key: s.prefix + key, Session: session}), session
}

func (s *site) lockOf(options api.LockOptions) *api.Lock {
	s.Helper()
	lock, err := s.LockOpts(&options)
	s.ok(err)
	return lock
}

// semaphore returns a semaphore with a session that lives until the test ends.
func (s *site) semaphore(prefix string, limit int) (semaphore *api.Semaphore, session string) {
	s.Helper()
	session = s.session(api.SessionEntry{Name: api.DefaultSemaphoreSessionName, TTL: api.DefaultSemaphoreSessionTTL, Behavior: api.SessionBehaviorDelete})
	return s.semaphoreOf(api.SemaphoreOptions{Prefix: s.prefix + prefix, Limit: limit, Session: session}), session
}

func (s *site) semaphoreOf(options api.SemaphoreOptions) *api.Semaphore {
	s.Helper()
	semaphore, err := s.SemaphoreOpts(&options)
	s.ok(err)
	return semaphore
}

// gets takes a lock or a slot, and returns the channel of its loss.
func (s *site) gets(take func(<-chan struct{}) (<-chan struct{}, error)) <-chan struct{} {
	s.Helper()
	stop := make(chan struct{})
	timer := time.AfterFunc(3*soon, func() { close(stop) })
	defer timer.Stop()
	lost, err := take(stop)
	s.ok(err)
	if lost == nil {
		s.Fatal("not held")
	}
	return lost
}

// holds fails if the loss was reported.
func (s *site) holds(lost <-chan struct{}) {
	s.Helper()
	select {
	case <-lost:
		s.Fatal("it was lost")
	default:
	}
}

// loses waits for the report of a loss, and returns how long it took.
func (s *site) loses(lost <-chan struct{}) time.Duration {
	s.Helper()
	began := time.Now()
	select {
	case <-lost:
	case <-time.After(soon):
		s.Fatalf("the loss was not reported within %v", soon)
	}
	return time.Since(began)
}

func (s *site) ok(err error) {
	s.Helper()
	ok(s.T, err)
}

// fails expects an error.
func (s *site) fails(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error %v, want %v", err, want)
	}
}

func (s *site) check(good bool, words string, values ...any) {
	s.Helper()
	if !good {
		s.Fatalf(words, values...)
	}
}

// within fails if a duration is longer than a bound, by more than what a busy machine may add.
func (s *site) within(bound, took time.Duration) {
	s.Helper()
	if took > bound {
		s.Logf("NOTE: %v, wanted within %v", took, bound)
	}
	if took > bound+soon {
		s.Fatalf("took %v, more than %v", took, bound)
	}
}

// works is what a holder does: it takes a while, so that another one would be seen beside it.
func works(t *testing.T, inside *atomic.Int64, limit int64, do func()) {
	if now := inside.Add(1); now > limit {
		t.Errorf("%d hold what %d may", now, limit)
	}
	<-time.After(2 * time.Millisecond)
	do()
	if now := inside.Add(-1); now >= limit {
		t.Errorf("%d others held what %d may", now, limit)
	}
}

// relay stands between a client and a node, and fails reads on demand.
type relay struct {
	address string

	mu     sync.Mutex
	errors int // how many reads of keys are still to be failed
	reads  int // that were passed on
}

func (s *site) relay() *relay {
	r := &relay{}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.cluster.address(s.node)})
	forward.ErrorLog = log.New(io.Discard, "", 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodGet && strings.HasPrefix(request.URL.Path, "/v1/kv/") && r.fails() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		forward.ServeHTTP(w, request)
	}))
	s.Cleanup(server.CloseClientConnections)
	r.address = strings.TrimPrefix(server.URL, "http://")
	return r
}

// fails reports whether a read is to be failed.
func (r *relay) fails() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.errors > 0 {
		r.errors--
		return true
	}
	r.reads++
	return false
}

func (r *relay) inject(errors int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = errors
}

func (r *relay) counts() (errors, reads int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors, r.reads
}

// monitored expects that a holder's monitor with three retries rides out two errors of
// status 500, and not ten. poke changes what it watches.
func (s *site) monitored(r *relay, lost <-chan struct{}, poke func(round byte)) {
	s.Helper()
	_, before := r.counts()
	r.inject(2)
	poke(1)
	eventually(s.T, soon, func() error {
		if left, reads := r.counts(); left > 0 || reads == before {
			return fmt.Errorf("the monitor has not read again: %d errors left, %d reads", left, reads-before)
		}
		return nil
	})
	s.holds(lost)
	r.inject(10)
	poke(2)
	s.loses(lost)
	left, _ := r.counts()
	s.check(left == 6, "%d of 10 errors left, want 6", left)
	r.inject(0)
}

func bodyOf(text string) io.Reader {
	if text == "" {
		return nil
	}
	return strings.NewReader(text)
}

// checklistCase is one thing that Consul's own tests ask for.
type checklistCase struct {
	name string
	run  func(s *site)
}

// checklist runs all cases at each node, all at the same time.
func checklist(t *testing.T, c *cluster, stage string) {
	t.Helper()
	t.Run(stage, func(t *testing.T) {
		for node := range nodes {
			for _, cases := range [][]checklistCase{semaphoreCases, lockCases, sessionCases, keyCases} {
				for _, test := range cases {
					name := c.name(node) + " " + test.name
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test.run(&site{T: t, Client: client(t, c.address(node)), cluster: c, node: node, prefix: stage + "/" + name + "/"})
					})
				}
			}
		}
	})
}

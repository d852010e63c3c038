package httpapi

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/memnet"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// throttleSite is a service that speaks the dialect, in a bubble of virtual time.
type throttleSite struct {
	*testing.T
	handler *Handler // the node that is asked
	node    Node     // the same
	advance func(d time.Duration)
	others  *throttleCluster // nil unless it has other nodes
}

// exactly lets ttls as they are given.
func exactly(cfg *Config) { cfg.Throttle = &Throttle{} }

// onMachine is a site without a cluster: commands are applied as they come.
func onMachine(t *testing.T, change ...func(*Config)) *throttleSite {
	a := newTestAPI(t, append([]func(*Config){exactly}, change...)...)
	return &throttleSite{T: t, handler: a.handler, node: a.node, advance: func(d time.Duration) {
		time.Sleep(d) // virtual
		a.node.advance(d.Milliseconds())
		synctest.Wait()
	}}
}

func onLeader(t *testing.T, change ...func(*Config)) *throttleSite {
	return newThrottleCluster(t, change...).site(true)
}

func onFollower(t *testing.T, change ...func(*Config)) *throttleSite {
	return newThrottleCluster(t, change...).site(false)
}

// throttleCluster is three real nodes on a network in memory.
type throttleCluster struct {
	t      *testing.T
	net    *memnet.Network
	change []func(*Config)
	limits fsm.Limits
	ids    []string
	stores map[string]*store.Store
	nodes  map[string]*cluster.Node // those that run
	apis   map[string]*Handler
}

func newThrottleCluster(t *testing.T, change ...func(*Config)) *throttleCluster {
	t.Helper()
	return newLimitedCluster(t, fsm.DefaultLimits(), change...)
}

func newLimitedCluster(t *testing.T, limits fsm.Limits, change ...func(*Config)) *throttleCluster {
	t.Helper()
	c := &throttleCluster{t: t, net: memnet.New(), limits: limits, change: append([]func(*Config){exactly}, change...),
		ids: []string{"n1", "n2", "n3"}, stores: map[string]*store.Store{}, nodes: map[string]*cluster.Node{}, apis: map[string]*Handler{}}
	for _, id := range c.ids {
		s, err := store.Open(store.Options{Ephemeral: true, NodeID: id})
		if err != nil {
			t.Fatal(err)
		}
		c.stores[id] = s
	}
	for _, id := range c.ids {
		c.start(id)
	}
	c.awaitReady()
	t.Cleanup(c.stop)
	return c
}

func (c *throttleCluster) start(id string) {
	c.t.Helper()
	config := cluster.Config{NodeID: id, Bind: id + ":8711", Network: c.net.Host(id), Store: c.stores[id], Limits: c.limits}
	for _, peer := range c.ids {
		config.Peers = append(config.Peers, cluster.Peer{ID: peer, Address: peer + ":8711"})
	}
	node, err := cluster.Start(context.Background(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := Config{Node: node, Version: "1.2.3"}
	for _, change := range c.change {
		change(&cfg)
	}
	if c.apis[id], err = New(cfg); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = node
}

// awaitReady waits, in virtual time, until all nodes that run are ready.
func (c *throttleCluster) awaitReady() {
	c.t.Helper()
	for range 600 {
		ready := true
		for _, n := range c.nodes {
			ready = ready && n.Ready()
		}
		if ready {
			return
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	c.t.Fatal("the cluster does not become ready")
}

func (c *throttleCluster) leader() string {
	for _, n := range c.nodes {
		if leader := n.Status().Leader; leader != "" {
			return leader
		}
	}
	c.t.Fatal("no leader")
	return ""
}

func (c *throttleCluster) site(leads bool) *throttleSite {
	id := c.leader()
	if !leads {
		for _, other := range c.ids {
			if other != c.leader() {
				id = other
			}
		}
	}
	return &throttleSite{T: c.t, handler: c.apis[id], node: c.nodes[id], others: c,
		advance: func(d time.Duration) { time.Sleep(d) }} // virtual
}

// kill takes a node away, without a word to the others.
func (c *throttleCluster) kill(id string) {
	c.t.Helper()
	c.net.Isolate(id)
	c.net.Crash(id)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.nodes[id].Close(gone); err != nil {
		c.t.Fatal(err)
	}
	delete(c.nodes, id)
}

func (c *throttleCluster) stop() {
	for _, id := range c.ids {
		c.net.Rejoin(id)
	}
	for _, n := range c.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := n.Close(ctx); err != nil {
			c.t.Error(err)
		}
		cancel()
	}
	for _, s := range c.stores {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// answer is what a request got, to the byte.
type throttleAnswer struct {
	status      int
	contentType string
	body        string
	header      func(string) string
}

// String is an answer as scripts write it.
func (a throttleAnswer) String() string {
	kind := map[string]string{plainText: "text", plainJSON: "json", nodeREDJSON: "utf8json", "": "bare", "application/problem+json": "problem"}[a.contentType]
	if kind == "" {
		kind = a.contentType
	}
	if kind == "problem" {
		return fmt.Sprintf("%d problem", a.status) // its form is the native API's matter
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", a.status, kind, strings.ReplaceAll(a.body, "\n", `\n`)))
}

// ask sends a request; a body is JSON unless a header says otherwise.
func (s *throttleSite) ask(line, body string, headers ...string) throttleAnswer {
	return s.askWith(context.Background(), line, body, headers...)
}

func (s *throttleSite) askWith(ctx context.Context, line, body string, headers ...string) throttleAnswer {
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, of, _ := strings.Cut(h, ": ")
		r.Header.Set(name, of)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if method == "HEAD" {
		w.Body.Reset() // as the server does
	}
	return throttleAnswer{w.Code, w.Header().Get("Content-Type"), w.Body.String(), w.Header().Get}
}

// is checks an answer as scripts write it.
func (s *throttleSite) is(got throttleAnswer, want string) {
	s.Helper()
	if got.String() != want {
		s.Errorf("got  %s\nwant %s", got, want)
	}
}

// later sends a request that may block, and returns when it does or is answered.
func (s *throttleSite) later(line, body string) <-chan throttleAnswer {
	answer := make(chan throttleAnswer, 1)
	go func() { answer <- s.ask(line, body) }()
	synctest.Wait()
	return answer
}

// semaphore makes or changes one; an empty level is none.
func (s *throttleSite) semaphore(name, permits, level string) {
	s.Helper()
	if level == "" {
		level = "null"
	}
	count, err := strconv.ParseInt(permits, 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	put := fsm.PutSemaphore{Name: name, Permits: fsm.Change[int64]{Given: true, Value: count}, Level: fsm.Change[*int32]{Given: true}}
	if level != "null" {
		n, err := strconv.ParseInt(level, 10, 32)
		if err != nil {
			s.Fatal(err)
		}
		value := int32(n)
		put.Level.Value = &value
	}
	s.do(put)
}

// do performs a command that must succeed.
func (s *throttleSite) do(command fsm.Command) cluster.Reply {
	s.Helper()
	reply, err := s.node.Do(context.Background(), cluster.Call{Command: command})
	if err != nil || reply.Code != fsm.OK {
		s.Fatalf("%+v: %v, %v", command, reply.Code, err)
	}
	return reply
}

// caughtUp waits until the node that is asked has applied what was done.
func (s *throttleSite) caughtUp(done cluster.Reply) {
	s.Helper()
	if _, err := s.node.Read(context.Background(), cluster.Consistency{MinIndex: done.Index}); err != nil {
		s.Fatal(err)
	}
}

// peer makes one with an id of its own.
func (s *throttleSite) peer(id, ttl string) {
	s.Helper()
	s.is(s.ask("POST /restore", `{"expires_in":"`+ttl+`","peer_id":`+id+`,"acquired":{}}`), "200 text Ok")
}

// inEachPlace runs a test over the bare state machine, and over three nodes
// through the leader and through another one, each in virtual time of its own.
func inEachPlace(t *testing.T, test func(s *throttleSite), change ...func(*Config)) {
	for name, site := range map[string]func(*testing.T, ...func(*Config)) *throttleSite{
		"machine": onMachine, "leader": onLeader, "follower": onFollower,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(site(t, change...)) })
		})
	}
}

// The scripts of testdata/throttle are the contract's tables. A line is one of
//
//	semaphore NAME PERMITS [LEVEL]   makes or changes one; NAME may be quoted
//	peer ID TTL                      makes a peer
//	advance DURATION
//	METHOD TARGET [BODY] => ANSWER   the body is JSON
//	& METHOD TARGET [BODY]           asks, and goes on while it blocks
//	=> ANSWER                        of the oldest that was left blocked
//	blocked                          none of them is answered yet
//
// An ANSWER is the status, "text", "json", "problem" or "bare" (without a
// Content-Type), and the whole body, in which \n is a line feed.
func TestThrottleScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/throttle/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			inEachPlace(t, func(s *throttleSite) { s.run(file, string(text)) })
		})
	}
}

func (s *throttleSite) run(file, text string) {
	s.Helper()
	var blocked []<-chan throttleAnswer
	asked := 0
	for i, line := range strings.Split(text, "\n") {
		line, want, answers := strings.Cut(line, "=> ")
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		failed := s.Failed()
		switch {
		case line == "" && answers:
			s.is(<-blocked[0], want)
			blocked, asked = blocked[1:], asked+1
		case line == "", strings.HasPrefix(line, "#"):
		case word == "blocked":
			synctest.Wait()
			for _, b := range blocked {
				if len(b) > 0 {
					s.Errorf("answered already: %s", <-b)
				}
			}
		case word == "semaphore":
			s.scriptSemaphore(rest)
		case word == "peer":
			id, ttl, _ := strings.Cut(rest, " ")
			s.peer(id, ttl)
		case word == "advance":
			d, err := time.ParseDuration(rest)
			if err != nil {
				s.Fatal(err)
			}
			s.advance(d)
		case word == "&":
			request, body := scriptRequest(rest)
			blocked = append(blocked, s.later(request, body))
		case answers:
			request, body := scriptRequest(line)
			s.is(s.ask(request, body), want)
			asked++
		default:
			s.Fatalf("%s:%d: %q", file, i+1, line)
		}
		if s.Failed() && !failed {
			s.Errorf("%s:%d: %s", file, i+1, line)
		}
	}
	if asked < 5 || len(blocked) > 0 {
		s.Errorf("%s: %d answers checked, %d left blocked", file, asked, len(blocked))
	}
}

func (s *throttleSite) scriptSemaphore(rest string) {
	s.Helper()
	name, numbers, _ := strings.Cut(rest, " ")
	if strings.HasPrefix(rest, `"`) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			s.Fatal(err)
		}
		name, _ = strconv.Unquote(quoted)
		numbers = strings.TrimSpace(rest[len(quoted):])
	}
	permits, level, _ := strings.Cut(numbers, " ")
	s.semaphore(name, permits, level)
}

// scriptRequest splits "METHOD TARGET BODY".
func scriptRequest(text string) (line, body string) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) == 3 {
		body = parts[2]
	}
	return parts[0] + " " + parts[1], body
}

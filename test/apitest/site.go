package apitest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// Site is a service that speaks a dialect, in a bubble of virtual time.
type Site struct {
	*testing.T
	Handler *httpapi.Handler // of the node that is asked
	Node    exchange.Node    // the same
	Advance func(d time.Duration)
	others  *Cluster                // nil unless it has other nodes
	turn    func() *httpapi.Handler // of the node whose turn it is; nil: Handler gets all requests
}

// onMachine is a site without a cluster: commands are applied as they come.
func onMachine(t *testing.T, change ...func(*Config)) *Site {
	a := New(t, change...)
	return &Site{T: t, Handler: a.Handler, Node: a.Node, Advance: func(d time.Duration) {
		time.Sleep(d) // virtual
		a.Node.Advance(d.Milliseconds())
		synctest.Wait()
	}}
}

// OnAPI is a site without a cluster, for tests without virtual time.
func OnAPI(t *testing.T, change ...func(*Config)) (*Site, *Node) {
	t.Helper()
	a := New(t, change...)
	return &Site{T: t, Handler: a.Handler, Node: a.Node}, a.Node
}

func onLeader(t *testing.T, change ...func(*Config)) *Site {
	return NewCluster(t, change...).Site(true)
}

// OnFollower is a site at a node that does not lead.
func OnFollower(t *testing.T, change ...func(*Config)) *Site {
	return NewCluster(t, change...).Site(false)
}

// onTurns is a site of which each request goes to the next of three nodes that run.
func onTurns(t *testing.T, change ...func(*Config)) *Site {
	c, turns := NewCluster(t, change...), 0
	s := c.Site(true)
	s.turn = func() *httpapi.Handler {
		for {
			id := c.IDs[turns%len(c.IDs)]
			turns++
			if c.Nodes[id] != nil {
				return c.APIs[id]
			}
		}
	}
	return s
}

// Cluster is three real nodes on a network in memory.
type Cluster struct {
	t      *testing.T
	Net    *memnet.Network
	change []func(*Config)
	limits fsm.Limits
	IDs    []string
	stores map[string]*store.Store
	Nodes  map[string]*cluster.Node // those that run
	APIs   map[string]*httpapi.Handler
}

// NewCluster starts three nodes and waits until they are ready.
func NewCluster(t *testing.T, change ...func(*Config)) *Cluster {
	t.Helper()
	return NewLimitedCluster(t, fsm.DefaultLimits(), change...)
}

// NewLimitedCluster is NewCluster with limits of the state machine.
func NewLimitedCluster(t *testing.T, limits fsm.Limits, change ...func(*Config)) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Net: memnet.New(), limits: limits, change: change,
		IDs: []string{"n1", "n2", "n3"}, stores: map[string]*store.Store{}, Nodes: map[string]*cluster.Node{}, APIs: map[string]*httpapi.Handler{}}
	for _, id := range c.IDs {
		s, err := store.Open(store.Options{Ephemeral: true, NodeID: id})
		if err != nil {
			t.Fatal(err)
		}
		c.stores[id] = s
	}
	for _, id := range c.IDs {
		c.Start(id)
	}
	c.AwaitReady()
	t.Cleanup(c.stop)
	return c
}

// Start starts a node.
func (c *Cluster) Start(id string) {
	c.t.Helper()
	config := cluster.Config{NodeID: id, Bind: id + ":8711", Network: c.Net.Host(id), Store: c.stores[id], Limits: c.limits}
	for _, peer := range c.IDs {
		config.Peers = append(config.Peers, cluster.Peer{ID: peer, Address: peer + ":8711"})
	}
	node, err := cluster.Start(context.Background(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.APIs[id] = NewHandler(c.t, node, c.change...)
	c.Nodes[id] = node
}

// AwaitReady waits, in virtual time, until all nodes that run are ready.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	for range 600 {
		ready := true
		for _, n := range c.Nodes {
			ready = ready && n.Ready()
		}
		if ready {
			return
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	c.t.Fatal("the cluster does not become ready")
}

// Leader returns the leader's id.
func (c *Cluster) Leader() string {
	for _, n := range c.Nodes {
		if leader := n.Status().Leader; leader != "" {
			return leader
		}
	}
	c.t.Fatal("no leader")
	return ""
}

// Site returns a site at the leader, or at another node.
func (c *Cluster) Site(leads bool) *Site {
	id := c.Leader()
	if !leads {
		for _, other := range c.IDs {
			if other != c.Leader() {
				id = other
			}
		}
	}
	return &Site{T: c.t, Handler: c.APIs[id], Node: c.Nodes[id], others: c,
		Advance: func(d time.Duration) { time.Sleep(d) }} // virtual
}

// Kill takes a node away, without a word to the others.
func (c *Cluster) Kill(id string) {
	c.t.Helper()
	c.Net.Isolate(id)
	c.Net.Crash(id)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Nodes[id].Close(gone); err != nil {
		c.t.Fatal(err)
	}
	delete(c.Nodes, id)
}

// KillLeader kills it and waits until another one leads.
func (c *Cluster) KillLeader() (gone string) {
	c.t.Helper()
	gone = c.Leader()
	c.Kill(gone)
	for range 600 {
		if led := c.Leads(); led != "" && led != gone {
			return gone
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	c.t.Fatal("no other leader")
	return ""
}

func (c *Cluster) killOne(id string) {
	c.t.Helper()
	if id == "leader" {
		c.KillLeader()
	} else {
		c.Kill(id)
	}
}

// Restart starts the nodes that were killed, and waits until all are ready.
func (c *Cluster) Restart() {
	c.t.Helper()
	for _, id := range c.IDs {
		if c.Nodes[id] == nil {
			c.Net.Rejoin(id)
			c.Start(id)
		}
	}
	c.AwaitReady()
}

func (c *Cluster) stop() {
	for _, id := range c.IDs {
		c.Net.Rejoin(id)
	}
	for _, n := range c.Nodes {
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

// Answer is the reply to a request, to the byte.
type Answer struct {
	Status      int
	ContentType string
	Body        string
	Header      func(string) string
}

// String returns the reply as scripts write it.
func (a Answer) String() string {
	kind := map[string]string{"text/plain; charset=utf-8": "text", "text/plain": "raw", "application/json": "json", "application/json; charset=utf-8": "utf8json", "": "bare", "application/problem+json": "problem"}[a.ContentType]
	if kind == "" {
		kind = a.ContentType
	}
	if kind == "problem" {
		return fmt.Sprintf("%d problem", a.Status) // its form is the native API's matter
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", a.Status, kind, strings.ReplaceAll(a.Body, "\n", `\n`)))
}

// Ask sends a request; a body is JSON unless a header says otherwise.
func (s *Site) Ask(line, body string, headers ...string) Answer {
	return s.AskWith(context.Background(), line, body, headers...)
}

// AskWith is Ask with a context.
func (s *Site) AskWith(ctx context.Context, line, body string, headers ...string) Answer {
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.Handler.ServeHTTP(w, r)
	if method == "HEAD" {
		w.Body.Reset() // as the server does
	}
	return Answer{w.Code, w.Header().Get("Content-Type"), w.Body.String(), w.Header().Get}
}

// Is checks a reply, in the form of scripts.
func (s *Site) Is(got Answer, want string) {
	s.Helper()
	if got.String() != want {
		s.Errorf("got  %s\nwant %s", got, want)
	}
}

// Later sends a request that may block, and returns once it blocks or has its reply.
func (s *Site) Later(line, body string) <-chan Answer {
	answer := make(chan Answer, 1)
	go func() { answer <- s.Ask(line, body) }()
	synctest.Wait()
	return answer
}

// Semaphore makes or changes one; an empty level is no level.
func (s *Site) Semaphore(name, permits, level string) {
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
	s.Do(put)
}

// Do performs a command that must succeed.
func (s *Site) Do(command fsm.Command) calls.Reply {
	s.Helper()
	reply, err := s.Node.Do(context.Background(), calls.Call{Command: command})
	if err != nil || reply.Code != fsm.OK {
		s.Fatalf("%+v: %v, %v", command, reply.Code, err)
	}
	return *reply
}

// CaughtUp waits until the node that is asked has applied the command of a reply.
func (s *Site) CaughtUp(done calls.Reply) {
	s.Helper()
	if _, err := s.Node.Read(context.Background(), calls.Consistency{MinIndex: done.Index}); err != nil {
		s.Fatal(err)
	}
}

// Peer makes a peer with a new id.
func (s *Site) Peer(id, ttl string) {
	s.Helper()
	s.Is(s.Ask("POST /restore", `{"expires_in":"`+ttl+`","peer_id":`+id+`,"acquired":{}}`), "200 text Ok")
}

// place makes a site.
type place func(*testing.T, ...func(*Config)) *Site

var everywhere = map[string]place{"machine": onMachine, "leader": onLeader, "follower": OnFollower}

// InEachPlace runs a test over the bare state machine, and over three nodes
// through the leader and through another one, each in its own virtual time.
func InEachPlace(t *testing.T, test func(s *Site), change ...func(*Config)) {
	inPlaces(t, everywhere, test, change...)
}

func inPlaces(t *testing.T, places map[string]place, test func(s *Site), change ...func(*Config)) {
	for name, site := range places {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(site(t, change...)) })
		})
	}
}

// Leads returns the leader that the nodes agree on, or "".
func (c *Cluster) Leads() (leader string) {
	for _, n := range c.Nodes {
		switch l := n.Status().Leader; {
		case l == "" || leader != "" && l != leader:
			return ""
		default:
			leader = l
		}
	}
	return leader
}

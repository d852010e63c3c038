//go:build chaos && linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signalbox/signalbox/test/checks"
)

const (
	httpPort, peerPort = 19501, 19601
	// patience bounds the wait for a condition after a fault has healed.
	patience = 60 * time.Second
	// electionTime is Raft's election time at a multiplier of 1.
	electionTime = 500 * time.Millisecond
)

// cluster has the processes of the nodes, their network and their events.
type cluster struct {
	t       *testing.T
	dir     string
	program string
	net     network
	breaks  bool // the network can break links
	nodes   []*node
	spare   *node // joins and leaves
	events  *checks.EventLog
	stop    chan struct{}
	follow  sync.WaitGroup
	http    *http.Client

	mu       sync.Mutex
	began    time.Time
	timeline []string
	broken   []string
}

// node is a node of the cluster: its process, and its files.
type node struct {
	c      *cluster
	number int
	id     string
	data   string
	faults string // the file that the hooks read
	disk   bool   // its folder is on a separate small file system

	mayEnd  atomic.Bool // its process may end, because of a fault
	process *exec.Cmd   // nil: it was not started
	ended   chan struct{}
}

// newCluster starts the nodes, and waits until all are ready.
func newCluster(t *testing.T, program, dir string, nodes int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: dir, program: program, events: checks.NewEventLog(), stop: make(chan struct{}), began: time.Now(),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 5 * time.Second}}}
	c.net, c.breaks = newNetwork(t, nodes+1)
	for i := range nodes + 1 {
		n := &node{c: c, number: i, id: fmt.Sprintf("n%d", i+1)}
		n.data, n.faults = filepath.Join(dir, n.id, "data"), filepath.Join(dir, n.id, "faults")
		must(t, os.MkdirAll(filepath.Dir(n.data), 0o700))
		c.nodes = append(c.nodes, n)
	}
	c.spare, c.nodes = c.nodes[nodes], c.nodes[:nodes]
	c.mountSmall(c.nodes[nodes-1])
	t.Cleanup(c.close)
	for _, n := range c.nodes {
		n.start()
	}
	c.ready()
	for _, n := range c.nodes {
		c.follow.Go(func() { c.followEvents(n) })
	}
	return c
}

// smallDisk is the size of the file system of one node.
const smallDisk = 160 << 20

// mountSmall puts a node's folder on a small file system, if the system permits it.
func (c *cluster) mountSmall(n *node) {
	at := filepath.Dir(n.data)
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)); err != nil {
		c.t.Logf("NOT CHECKED: a full disk: no small file system can be mounted here: %v", err)
		return
	}
	n.disk = true
	c.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

func (c *cluster) close() {
	close(c.stop)
	for _, n := range append([]*node{c.spare}, c.nodes...) {
		n.signal(syscall.SIGCONT)
		n.kill()
	}
	c.follow.Wait()
	c.http.CloseIdleConnections()
}

// note adds a line to the timeline.
func (c *cluster) note(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeline = append(c.timeline, fmt.Sprintf("%v ", time.Since(c.began).Round(time.Millisecond))+fmt.Sprintf(format, arguments...))
}

// fail records a violation.
func (c *cluster) fail(format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	c.note("BROKEN: %s", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, text)
}

// takeBroken returns the violations since the last call.
func (c *cluster) takeBroken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.broken
	c.broken = nil
	return list
}

func (n *node) url() string  { return fmt.Sprintf("http://%s:%d", n.c.net.host(n.number), httpPort) }
func (n *node) peer() string { return fmt.Sprintf("%s:%d", n.c.net.host(n.number), peerPort) }
func (n *node) log() string  { return filepath.Join(n.c.dir, n.id+".log") }

// urls returns the URLs of all nodes, the URL of node first at the front.
func (c *cluster) urls(first int) (list []string) {
	for i := range c.nodes {
		list = append(list, c.nodes[(first+i)%len(c.nodes)].url())
	}
	return list
}

// start starts the process of a node, which must not end unasked.
func (n *node) start() { n.launch(false) }

// launch starts the process of a node. mayEnd: a fault may end the process.
func (n *node) launch(mayEnd bool) {
	c := n.c
	c.t.Helper()
	var peers []string
	for _, other := range c.nodes {
		peers = append(peers, other.id+"="+other.peer())
	}
	if n == c.spare {
		peers = append(peers, n.id+"="+n.peer())
	}
	command := c.net.command(n.number, c.program, "serve", "--node-id", n.id, "--http", strings.TrimPrefix(n.url(), "http://"), "--peer", n.peer(),
		"--peers", strings.Join(peers, ","), "--data", n.data, "--min-free", "16MiB", "--insecure-http", "--insecure-peers", "--event-history", "400000", "--event-history-size", "256MiB")
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(c.t, err)
	defer log.Close()
	command.Env = append(os.Environ(), "CHAOS_FAULTS="+n.faults)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(c.t, command.Start())
	ended := make(chan struct{})
	n.process, n.ended = command, ended
	n.mayEnd.Store(mayEnd)
	go func() {
		err := command.Wait()
		if !n.mayEnd.Load() {
			c.fail("%s ended by itself: %v", n.id, err)
		}
		close(ended)
	}()
}

// alive reports whether the process runs.
func (n *node) alive() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

func (n *node) signal(s syscall.Signal) {
	if n.process != nil {
		_ = n.process.Process.Signal(s)
	}
}

// kill ends the process with SIGKILL, and waits until it is gone.
func (n *node) kill() {
	if n.process == nil {
		return
	}
	n.mayEnd.Store(true)
	n.signal(syscall.SIGKILL)
	<-n.ended
}

// terminate ends the process with SIGTERM.
func (n *node) terminate() {
	n.mayEnd.Store(true)
	n.signal(syscall.SIGTERM)
	select {
	case <-n.ended:
	case <-time.After(15 * time.Second):
		n.c.fail("%s still runs 15 s after SIGTERM", n.id)
		n.kill()
	}
}

// set puts faults of the hooks in force; "" removes them.
func (n *node) set(faults string) { must(n.c.t, os.WriteFile(n.faults, []byte(faults), 0o600)) }

// status is the reply to GET /v1/cluster.
type status struct {
	Node      string  `json:"node"`
	Leader    *string `json:"leader"`
	Term      uint64  `json:"term"`
	Applied   uint64  `json:"applied_index"`
	StateHash string  `json:"state_hash"`
}

// ask sends a request to a node, and decodes the reply into into, unless that is nil.
func (c *cluster) ask(n *node, method, path, body string, into any) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return c.askFor(ctx, n, method, path, body, into)
}

func (c *cluster) askFor(ctx context.Context, n *node, method, path, body string, into any) (int, error) {
	request, err := http.NewRequestWithContext(ctx, method, n.url()+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	return response.StatusCode, err
}

// leader returns the node that leads by the report of any node, or nil.
func (c *cluster) leader() *node {
	for _, n := range c.nodes {
		var s status
		if _, err := c.ask(n, http.MethodGet, "/v1/cluster", "", &s); err != nil || s.Leader == nil {
			continue
		}
		for _, leader := range c.nodes {
			if leader.id == *s.Leader {
				return leader
			}
		}
	}
	return nil
}

// target picks the leader or any node.
func (c *cluster) target(random *rand.Rand) *node {
	if leader := c.leader(); leader != nil && random.IntN(2) == 0 {
		return leader
	}
	return c.nodes[random.IntN(len(c.nodes))]
}

// until waits for a condition, and reports whether it was met in time.
func (c *cluster) until(what string, within time.Duration, holds func() bool) bool {
	late, again := time.After(within), time.NewTicker(25*time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-late:
			c.fail("in vain for %v: %s", within, what)
			return false
		case <-again.C:
		}
	}
	return true
}

// ready waits until all nodes are ready.
func (c *cluster) ready() bool {
	return c.until("all nodes are ready", patience, func() bool {
		for _, n := range c.nodes {
			if code, err := c.ask(n, http.MethodGet, "/readyz", "", nil); err != nil || code != http.StatusOK {
				return false
			}
		}
		return c.leader() != nil
	})
}

// agreed waits until all nodes have the same state at the same index.
func (c *cluster) agreed() bool {
	return c.until("all nodes have the same state", patience, func() bool {
		var first status
		for i, n := range c.nodes {
			var s status
			if _, err := c.ask(n, http.MethodGet, "/v1/cluster", "", &s); err != nil || s.StateHash == "" {
				return false
			}
			if i == 0 {
				first = s
			}
			if s.Applied == first.Applied && s.StateHash != first.StateHash {
				c.fail("at index %d %s has the state hash %s, and %s has %s", s.Applied, first.Node, first.StateHash, s.Node, s.StateHash)
			}
			if s.Applied != first.Applied {
				return false
			}
		}
		return true
	})
}

package consulclient

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

var firstPort = flag.Int("ports", 0, "the first of six ports of the nodes; 0: any that are free")

const nodes = 3

// cluster is three processes of the program under test.
type cluster struct {
	t       *testing.T
	program string
	dir     string
	base    int // HTTP on base, base+1, base+2; peers on the three ports that follow
	running [nodes]*process
}

// process is one running node.
type process struct {
	command *exec.Cmd
	done    chan struct{}
	err     error // of Wait; read after done
}

// startCluster starts three nodes that serve Consul's clients, and waits until they are ready.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	program := os.Getenv("SIGNALBOX")
	if program == "" {
		t.Fatal("the variable SIGNALBOX does not name the program; run: make consul")
	}
	c := &cluster{t: t, program: program, dir: t.TempDir(), base: freePorts(t)}
	for node := range nodes {
		c.start(node)
	}
	for node := range nodes {
		c.waitReady(node)
	}
	return c
}

// freePorts returns the first of six free ports below the range that kernels take for connections.
func freePorts(t *testing.T) int {
	t.Helper()
	if *firstPort != 0 {
		return *firstPort
	}
	for range 1000 {
		base := 10240 + rand.IntN(22000)
		if !slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5}, func(offset int) bool {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
			if err == nil {
				err = l.Close()
			}
			return err != nil
		}) {
			return base
		}
	}
	t.Fatal("no free ports found")
	return 0
}

func (c *cluster) address(node int) string { return fmt.Sprintf("127.0.0.1:%d", c.base+node) }

func (c *cluster) name(node int) string { return fmt.Sprint("n", node+1) }

func (c *cluster) peer(node int) string { return fmt.Sprintf("127.0.0.1:%d", c.base+nodes+node) }

func (c *cluster) start(node int) {
	c.t.Helper()
	id := c.name(node)
	output, err := os.OpenFile(filepath.Join(c.dir, id+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	ok(c.t, err)
	defer output.Close() // the child has its own
	p := &process{done: make(chan struct{})}
	p.command = exec.Command(c.program, "serve", "--node-id", id, "--http", c.address(node), "--peer", c.peer(node),
		"--peers", fmt.Sprintf("n1=%s,n2=%s,n3=%s", c.peer(0), c.peer(1), c.peer(2)),
		"--data", filepath.Join(c.dir, id), "--min-free", "1MiB", "--dialects", "consul")
	p.command.Stdout, p.command.Stderr = output, output
	ok(c.t, p.command.Start())
	go func() {
		p.err = p.command.Wait()
		close(p.done)
	}()
	c.running[node] = p
	c.t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if text, err := os.ReadFile(output.Name()); err == nil && c.t.Failed() {
			c.t.Logf("%s ended: %v\n%s", id, p.err, text[max(0, len(text)-4000):])
		}
	})
}

// end sends a signal and returns when the process is gone. It may be called again.
func (p *process) end(signal syscall.Signal) {
	_ = p.command.Process.Signal(signal)
	<-p.done
}

func (c *cluster) waitReady(node int) {
	c.t.Helper()
	eventually(c.t, time.Minute, func() error {
		select {
		case <-c.running[node].done:
			return fmt.Errorf("n%d ended: %v", node+1, c.running[node].err)
		default:
		}
		status, text, err := c.ask(node, http.MethodGet, "/readyz", "")
		if err == nil && status != http.StatusOK {
			err = errors.New(text)
		}
		return err
	})
}

// ask sends a request as curl does.
func (c *cluster) ask(node int, method, path, body string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.address(node)+path, bodyOf(body))
	if err != nil {
		return 0, "", err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	got, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(got), err
}

// leader returns which node leads.
func (c *cluster) leader() (node int) {
	c.t.Helper()
	eventually(c.t, time.Minute, func() error {
		node = -1
		for follower := range nodes {
			var address string
			if _, text, err := c.ask(follower, http.MethodGet, "/v1/status/leader", ""); err == nil {
				_ = json.Unmarshal([]byte(text), &address)
			}
			for other := range nodes {
				if address == c.peer(other) {
					node = other
					return nil
				}
			}
		}
		return errors.New("no node names a leader")
	})
	return node
}

// killLeader kills the leader, and starts it again when another node leads.
func (c *cluster) killLeader() {
	c.t.Helper()
	node := c.leader()
	c.running[node].end(syscall.SIGKILL)
	eventually(c.t, time.Minute, func() error {
		if c.leader() == node {
			return errors.New("the dead node still leads")
		}
		return nil
	})
	c.start(node)
	c.waitReady(node)
}

// rollingRestart stops one node after the other, and starts it again.
func (c *cluster) rollingRestart() {
	c.t.Helper()
	for node := range nodes {
		c.running[node].end(syscall.SIGTERM)
		if err := c.running[node].err; err != nil {
			c.t.Errorf("n%d after SIGTERM: %v", node+1, err)
		}
		c.start(node)
		c.waitReady(node)
	}
}

// client returns a client of Consul for an address, with its own connections, as a process has.
// around gets its default transport, and returns another one.
func client(t *testing.T, address string, around ...func(*http.Transport) http.RoundTripper) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address = address
	for _, wrap := range around {
		config.HttpClient = &http.Client{Transport: wrap(config.Transport)}
	}
	c, err := api.NewClient(config)
	ok(t, err)
	t.Cleanup(config.Transport.CloseIdleConnections)
	return c
}

// eventually calls check until it returns nil.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(within); ; <-pause.C {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %v", within, err)
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

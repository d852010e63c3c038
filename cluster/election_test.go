package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/peer"
)

// TestDeadLeaderIsReplacedAtOnce: the processes of leaders end, again and again; each time one
// follower campaigns, once, and leads in a tenth of a second.
func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	for _, count := range []int{3, 5} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			inBubble(t, count, func(t *testing.T, c *nodes) {
				var slowest time.Duration
				for range 30 {
					n := c.leader()
					term := n.raft().CurrentTerm()
					began := time.Now()
					c.kill(n)
					next := c.leader()
					slowest = max(slowest, time.Since(began))
					if now := next.raft().CurrentTerm(); now != term+1 {
						t.Errorf("%d terms for one death", now-term)
					}
					c.revive(n)
					c.settled(next)
				}
				if slowest > 100*time.Millisecond {
					t.Errorf("a death cost %v", slowest)
				}
			})
		})
	}
}

// TestRestartedNodeIsTakenAtOnce: a node that was killed and started again at once follows the leader soon, since the idle
// streams of its former process do not keep it out.
func TestRestartedNodeIsTakenAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		const rounds = 12
		var total time.Duration
		for round := range rounds {
			n := c.all[round%3]
			c.settled(c.leader())
			c.kill(n)
			c.leader(n)
			began := time.Now()
			c.revive(n)
			c.until("a leader of "+n.id, func() bool {
				if n.raft() == nil {
					return false
				}
				_, leader := n.raft().LeaderWithID()
				return leader != ""
			})
			total += time.Since(began)
		}
		if total/rounds > 250*time.Millisecond {
			t.Errorf("a restarted node had a leader after %v on average", total/rounds)
		}
	})
}

// settled waits until all nodes follow a leader.
func (c *nodes) settled(leader *testNode) {
	c.t.Helper()
	c.until("followers of "+leader.id, func() bool {
		for _, n := range c.all {
			if n.raft() == nil {
				return false
			}
			if _, id := n.raft().LeaderWithID(); string(id) != leader.id {
				return false
			}
		}
		return true
	})
	time.Sleep(time.Second) // virtual: so that each node has streams to each other
}

// TestLivingLeaderStays: a leader that lives is not deposed early, however its streams end; one
// that is silent is left to Raft's time-outs.
func TestLivingLeaderStays(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.leader()
		term := n.raft().CurrentTerm()
		for range 200 {
			for _, other := range c.others(n) {
				c.net.Reset(n.id, other.id)
			}
			time.Sleep(100 * time.Millisecond) // virtual: between resets
		}
		if now := c.leader(); now != n || n.raft().CurrentTerm() != term {
			t.Errorf("resets of its streams deposed the leader: term %d, then %d", term, now.raft().CurrentTerm())
		}
		began := time.Now()
		c.net.Isolate(n.id) // as a machine without power: no stream ends
		c.leader(n)
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("a silent leader was deposed after %v", took)
		}
		c.net.Rejoin(n.id)
	})
}

// TestIdentify: the port of a member tells its processes apart, and refuses after its death.
func TestIdentify(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.leader()
		other := c.others(n)[0]
		identify := func() (uint64, error) {
			return electionCandidate{other.running.Load(), other.Node}.Identify(t.Context(), n.id)
		}
		first, err := identify()
		again, _ := identify()
		if err != nil || first == 0 || again != first {
			t.Errorf("a living process is %d, then %d: %v", first, again, err)
		}
		c.kill(n)
		if _, err := identify(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a dead process: %v", err)
		}
		c.revive(n)
		c.settled(c.leader())
		if next, err := identify(); err != nil || next == 0 || next == first {
			t.Errorf("the process after %d is %d: %v", first, next, err)
		}
	})
}

// refusing is a network on which connections to one address are refused while that is switched on.
type refusing struct {
	peer.Network
	address *atomic.Pointer[string]
}

func (r refusing) Dial(ctx context.Context, address string) (net.Conn, error) {
	if refused := r.address.Load(); refused != nil && *refused == address {
		return nil, syscall.ECONNREFUSED
	}
	return r.Network.Dial(ctx, address)
}

// TestRefusedLeaderIsDeposedOnce: a firewall refuses connections to a leader that lives, and ends its
// streams once a second. It is deposed once in 30 s at most.
func TestRefusedLeaderIsDeposedOnce(t *testing.T) {
	var refused atomic.Pointer[string]
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.leader()
		address := n.id + ":8711"
		early := func() (count float64) {
			for _, node := range c.all {
				count += metricsOf(t, node)["raft_early_campaigns_total"]
			}
			return count
		}
		campaigns := early()
		refused.Store(&address)
		deposed, leads := 0, true
		for range 29 {
			for _, other := range c.others(n) {
				c.net.Reset(n.id, other.id)
			}
			for range 20 {
				time.Sleep(50 * time.Millisecond) // virtual: between looks
				if now := n.established() != nil; now != leads {
					if leads = now; !leads {
						deposed++
						refused.Store(nil) // so that it can lead again
						c.until("the old leader leads again", func() bool {
							_ = c.leader().raft().LeadershipTransferToServer(raft.ServerID(n.id), raft.ServerAddress(address)).Error()
							return n.established() != nil
						})
						leads = true
						refused.Store(&address)
					}
				}
			}
		}
		if campaigns = early() - campaigns; deposed != 1 || campaigns != 1 {
			t.Errorf("deposed %d times in 29 s, and %v early campaigns are counted", deposed, campaigns)
		}
	}, func(config *Config) { config.Network = refusing{config.Network, &refused} })
}

// TestFirstLeaderAtOnce: a new cluster, a node alone, and a cluster whose nodes were all restarted
// have a leader without waiting for the silence of another one.
func TestFirstLeaderAtOnce(t *testing.T) {
	for _, count := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			began := time.Time{}
			inBubble(t, count, func(t *testing.T, c *nodes) {
				if took := time.Since(began); took > 150*time.Millisecond {
					t.Errorf("the first leader after %v", took)
				}
				for _, n := range c.all {
					if n.raft().CurrentTerm() > 2 {
						t.Errorf("term %d of the first leader", n.raft().CurrentTerm())
					}
				}
				time.Sleep(time.Second) // virtual: all have the first entries
				for _, n := range c.all {
					c.kill(n)
				}
				began = time.Now()
				for _, n := range c.all {
					c.revive(n)
				}
				c.leader()
				if took := time.Since(began); took > 150*time.Millisecond {
					t.Errorf("a leader %v after the restart of all", took)
				}
			}, func(*Config) {
				if began.IsZero() {
					began = time.Now()
				}
			})
		})
	}
}

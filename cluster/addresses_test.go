package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
)

// address returns a member's, as a node has it.
func (c *nodes) address(on *testNode, id string) string {
	server, _ := membership.Find(on.joining.Servers(), id)
	return peer.PlainAddress(server.Address)
}

// elsewhere is the address to which moved has a node move at its next start.
const elsewhere = "elsewhere:8711"

// moved starts a node at another address.
func (c *lifeNodes) moved(n *testNode) {
	c.t.Helper()
	c.setups = append(c.setups, func(config *Config) {
		for i := range config.Peers {
			if config.NodeID == n.id && config.Peers[i].ID == n.id {
				config.Bind, config.Peers[i].Address = elsewhere, elsewhere
			}
		}
	})
	c.kill(n)
	time.Sleep(3 * time.Second) // virtual: the others give the killed process up
	c.net.Rejoin(n.id)
	c.begin(n)
}

// TestVoterMoves as it would be removed and added: without its vote the others need a majority. A
// leader hands over first.
func TestVoterMoves(t *testing.T) {
	for _, leads := range []bool{false, true} {
		formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
			leader := c.leader()
			n := c.others(leader)[0]
			if leads {
				n = leader
			}
			ctx, done := context.WithCancel(t.Context())
			defer done()
			defer passOn(ctx, c, elsewhere, n.id+":8711").Close()
			rest := c.others(n)
			down := rest[0]
			if down == leader {
				down = rest[1]
			}
			c.kill(down)
			c.until("the silence is noticed", func() bool { return leader.members().Seen()[down.id].Failing })
			if err := leader.AddMember(t.Context(), n.id, elsewhere); !errors.Is(err, outcome.ErrMemberInvalid) || !strings.Contains(err.Error(), "no majority") {
				t.Errorf("with %s down: %v", down.id, err)
			}
			c.revive(down)
			c.ready(rest...)
			c.until("it is seen again", func() bool { return !c.leader().members().Seen()[down.id].Failing })
			c.must(rest[0].AddMember(t.Context(), n.id, elsewhere))
			c.voting([]string{"n1", "n2", "n3"}, c.all...)
			for _, on := range c.all {
				c.until(on.id+" has the address", func() bool { return c.address(on, n.id) == elsewhere })
			}
			if leads && c.leader() == n {
				t.Error("the leader has not handed over")
			}
		})
	}
}

// operatorChanges are what an operator has a leader change, of the cluster of that other node.
var operatorChanges = map[string]func(ctx context.Context, asked, other *testNode) error{
	"add":    func(ctx context.Context, asked, _ *testNode) error { return asked.AddMember(ctx, "n4", "n4:8711") },
	"remove": func(ctx context.Context, asked, other *testNode) error { return asked.RemoveMember(ctx, other.id) },
	"move": func(ctx context.Context, asked, other *testNode) error {
		return asked.AddMember(ctx, other.id, elsewhere)
	},
	"raise": func(ctx context.Context, asked, _ *testNode) error { return asked.RaiseLevel(ctx, fsm.FeatureLevel) },
}

// TestLoggedChangeIsUnknown: the leader has a change in its log and loses its leadership before a majority has
// the change. No node says that it had no effect.
func TestLoggedChangeIsUnknown(t *testing.T) {
	for name, change := range operatorChanges {
		for _, through := range []string{"the leader", "a follower"} {
			t.Run(name+" through "+through, func(t *testing.T) {
				lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
					var cut atomic.Pointer[string] // the leader, from the moment at which it sends an entry
					c.setups = append(c.setups, func(config *Config) {
						config.fault = func(_ raft.ServerID, request any) error {
							args, appends := request.(*raft.AppendEntriesRequest)
							if id := cut.Load(); id == nil || *id != config.NodeID || !appends || len(args.Entries) == 0 {
								return nil
							}
							c.net.Isolate(config.NodeID)
							return errors.New("cut off")
						}
					})
					c.begin(c.all...)
					c.ready(c.all...)
					members := append([]*testNode(nil), c.all...)
					other := c.follower()
					if name == "add" {
						c.begin(joiner(c, "n4"))
					}
					if name == "move" {
						c.moved(other)
					}
					leader := c.leader()
					asked := leader
					if through == "a follower" {
						for _, n := range members {
							if n != leader && n != other {
								asked = n
							}
						}
					}
					last := leader.raft().LastIndex()
					cut.Store(&leader.id)
					if err := change(t.Context(), asked, other); !errors.Is(err, outcome.ErrOutcomeUnknown) || errors.Is(err, outcome.ErrNoLeader) {
						t.Errorf("%v", err)
					}
					if leader.raft().LastIndex() == last {
						t.Error("the change was not logged")
					}
					cut.Store(nil)
					c.net.Rejoin(leader.id)
					c.until("it is repeated", func() bool { return change(t.Context(), c.leader(), other) == nil })
				})
			})
		}
	}
}

// TestWayBackFromWrongAddresses as docs/repair.md has it: what was accepted before addresses were asked, a
// name that leads elsewhere by now, or a change of the network. Something that listens at a wrong address and passes
// connections on to the member ends that, with all data.
func TestWayBackFromWrongAddresses(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		leases := c.holding(c.leader(), 5)
		leader := c.leader()
		lost := c.others(leader)
		addVoter := func(n *testNode) error { // past all checks
			return leader.raft().AddVoter(raft.ServerID(n.id), raft.ServerAddress("wrong-"+n.id+":8711"), 0, time.Second).Error()
		}
		// A member that has received its new address could be elected: it still reaches the other members.
		c.net.Partition(leader.id, lost[0].id)
		c.must(addVoter(lost[0]))
		c.net.Partition(leader.id, lost[1].id)
		if err := addVoter(lost[1]); err == nil {
			t.Fatal("a change without a majority is committed")
		}
		c.leaderless(leader)
		for _, n := range lost {
			c.net.Reset(leader.id, n.id)
			c.net.Heal(leader.id, n.id)
			c.net.Heal(n.id, leader.id)
		}
		if err := leader.AddMember(t.Context(), lost[1].id, lost[1].id+":8711"); !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("without a majority: %v", err)
		}
		ctx, done := context.WithCancel(t.Context())
		defer done()
		listener := passOn(ctx, c, "wrong-"+lost[0].id+":8711", lost[0].id+":8711")
		defer listener.Close()
		for _, n := range []*testNode{lost[1], lost[0]} { // first the one that is not reached
			c.until("it has its address", func() bool { return c.leader().AddMember(t.Context(), n.id, n.id+":8711") == nil })
		}
		_ = listener.Close()
		c.ready(c.all...)
		for _, n := range c.all {
			if got := leases(n); len(got) != 5 || c.address(n, lost[0].id) != lost[0].id+":8711" || c.address(n, lost[1].id) != lost[1].id+":8711" {
				t.Errorf("%s has %d leases, and %v", n.id, len(got), n.joining.Servers())
			}
		}
	})
}

// passOn listens at an address and passes connections on to another one.
func passOn(ctx context.Context, c *lifeNodes, from, to string) net.Listener {
	host := c.net.Host("forwarder")
	listener, err := host.Listen(from)
	c.must(err)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := host.Dial(ctx, to)
			if err != nil {
				_ = near.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
				_ = from.Close()
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
	return listener
}

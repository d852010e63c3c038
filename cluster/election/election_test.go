package election

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// voter is a node of a made-up cluster: its Raft is a few fields, and its questions go straight
// to the other voters.
type voter struct {
	*Election
	mu          *sync.Mutex // of the cluster: guards the fields below
	all         map[string]*voter
	id          string
	state       raft.RaftState
	leader      string
	term, index uint64 // of its last entry
	now         uint64 // its present term
	unable      error
	heard       time.Time       // when its leader was heard last
	deaf        bool            // its questions and the replies to it are lost
	refuses     map[string]bool // whose ports refuse connections, as this node sees it
	fails       error           // the result of each dial; nil: by refuses
	campaigns   int
	incarnation uint64
	wins        bool // a campaign makes it the leader of all
}

// look reads fields.
func look[T any](v *voter, read func() T) T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return read()
}

func (v *voter) State() raft.RaftState  { return look(v, func() raft.RaftState { return v.state }) }
func (v *voter) CurrentTerm() uint64    { return look(v, func() uint64 { return v.now }) }
func (v *voter) LastContact() time.Time { return look(v, func() time.Time { return v.heard }) }
func (v *voter) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	leader := look(v, func() string { return v.leader })
	return raft.ServerAddress(leader), raft.ServerID(leader)
}
func (v *voter) Able() error { return look(v, func() error { return v.unable }) }
func (v *voter) LastEntry() (term, index uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.term, v.index
}

func (v *voter) GetConfiguration() raft.ConfigurationFuture { return configuration{v: v} }

// configuration has all nodes of the cluster, as voters.
type configuration struct {
	raft.ConfigurationFuture
	v *voter
}

func (c configuration) Configuration() (found raft.Configuration) {
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		if c.v.all[id] != nil {
			found.Servers = append(found.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
		}
	}
	return found
}

var errLost = errors.New("lost on the way")

func (v *voter) Ask(ctx context.Context, to raft.Server, q Question) (Reply, error) {
	other := v.all[string(to.ID)]
	if look(v, func() bool { return v.deaf || other.deaf || v.refuses[other.id] }) {
		return Reply{}, errLost
	}
	return other.Judge(ctx, q), nil
}

func (v *voter) Identify(_ context.Context, node string) (uint64, error) {
	if err := look(v, func() error { return v.fails }); err != nil {
		return 0, err
	}
	if look(v, func() bool { return v.refuses[node] }) {
		return 0, syscall.ECONNREFUSED
	}
	return look(v, func() uint64 { return v.all[node].incarnation }), nil
}

func (v *voter) Campaign() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.campaigns++
	if v.wins {
		for _, other := range v.all {
			if other.now++; other.state != raft.Shutdown {
				other.state, other.leader = raft.Follower, v.id
			}
		}
		v.state = raft.Leader
	}
	return nil
}

func (v *voter) count() int { return look(v, func() int { return v.campaigns }) }

// elect makes a cluster of these nodes with equal logs, of which n1 leads, and runs the elections
// of the others around a test.
func elect(t *testing.T, ids []string, test func(t *testing.T, all map[string]*voter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all, mu := map[string]*voter{}, &sync.Mutex{}
		for _, id := range ids {
			v := &voter{mu: mu, id: id, all: all, state: raft.Follower, leader: "n1", term: 3, index: 300, wins: true, incarnation: 7, refuses: map[string]bool{}}
			v.Election = New(raft.ServerID(id), v, v, 1, hclog.NewNullLogger())
			all[id] = v
		}
		all["n1"].state = raft.Leader
		for _, v := range all {
			go v.Run(t.Context())
		}
		synctest.Wait()
		test(t, all)
	})
}

var three = []string{"n1", "n2", "n3"}

// change changes fields while the elections run.
func change(all map[string]*voter, edit func()) {
	all["n1"].mu.Lock()
	defer all["n1"].mu.Unlock()
	edit()
}

// die ends the process of n1, as the others see it; order: in which their streams end.
func die(all map[string]*voter, order ...string) {
	change(all, func() {
		all["n1"].state = raft.Shutdown
		for _, v := range all {
			v.refuses["n1"] = true
		}
	})
	for _, id := range order {
		all[id].StreamEnded(Process{Node: "n1", Incarnation: 7})
	}
}

// settled waits and returns how often each node campaigned, in the order n2, n3, ….
func settled(all map[string]*voter, after time.Duration) (campaigns []int) {
	time.Sleep(after) // virtual
	synctest.Wait()
	for _, id := range []string{"n2", "n3", "n4", "n5"} {
		if all[id] != nil {
			campaigns = append(campaigns, all[id].count())
		}
	}
	return campaigns
}

func wantCampaigns(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: campaigns of n2, n3, …: %v, wanted %v", what, got, want)
			return
		}
	}
}

// TestOneCampaign: of the followers of a dead leader one campaigns, whichever learns of it
// first: the one with the longest log, and of equal logs the lowest id.
func TestOneCampaign(t *testing.T) {
	for _, order := range [][]string{{"n2", "n3"}, {"n3", "n2"}, {"n3"}, {"n2"}} {
		elect(t, three, func(t *testing.T, all map[string]*voter) {
			die(all, order...)
			wantCampaigns(t, "equal logs", settled(all, 40*time.Millisecond), 1, 0)
		})
		elect(t, three, func(t *testing.T, all map[string]*voter) {
			change(all, func() { all["n3"].index++ })
			die(all, order...)
			wantCampaigns(t, "a longer log of n3", settled(all, 40*time.Millisecond), 0, 1)
		})
		elect(t, three, func(t *testing.T, all map[string]*voter) {
			change(all, func() { all["n3"].term, all["n2"].index = 4, 400 })
			die(all, order...)
			wantCampaigns(t, "a later last term of n3", settled(all, 40*time.Millisecond), 0, 1)
		})
	}
	elect(t, []string{"n1", "n2", "n3", "n4", "n5"}, func(t *testing.T, all map[string]*voter) {
		die(all, "n5", "n4", "n3", "n2")
		wantCampaigns(t, "five nodes", settled(all, 40*time.Millisecond), 1, 0, 0, 0)
	})
}

// TestTheNextBestFollows: a better candidate that does not come forward, or may not lead, costs a moment.
func TestTheNextBestFollows(t *testing.T) {
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n2"].unable = errLost })
		die(all, "n3", "n2")
		wantCampaigns(t, "n2 may not lead", settled(all, 40*time.Millisecond), 0, 1)
	})
	elect(t, []string{"n1", "n2", "n3", "n4", "n5"}, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n2"].wins = false })
		die(all, "n2", "n3", "n4", "n5")
		wantCampaigns(t, "n2 loses", settled(all, 400*time.Millisecond), 1, 1, 0, 0)
	})
}

// TestNoProofNoCampaign: the end of streams alone, without a refused connection, and a refusal that
// only a minority sees, are no reason to campaign.
func TestNoProofNoCampaign(t *testing.T) {
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		for range 50 {
			all["n2"].StreamEnded(Process{Node: "n1", Incarnation: 7})
			all["n3"].StreamEnded(Process{Node: "n1", Incarnation: 7})
			wantCampaigns(t, "the port is open", settled(all, time.Second), 0, 0)
		}
	})
	for _, err := range []error{
		context.DeadlineExceeded,   // the leader is stopped, or its accept queue is full
		syscall.ECONNRESET, io.EOF, // its port accepts and closes
		syscall.EHOSTUNREACH, &net.DNSError{Err: "no such host", Name: "n1", IsNotFound: true},
		x509.UnknownAuthorityError{}, errLost,
	} {
		elect(t, three, func(t *testing.T, all map[string]*voter) {
			change(all, func() { all["n2"].fails, all["n3"].fails = err, err })
			all["n2"].StreamEnded(Process{Node: "n1", Incarnation: 7})
			all["n3"].StreamEnded(Process{Node: "n1", Incarnation: 7})
			wantCampaigns(t, err.Error(), settled(all, 400*time.Millisecond), 0, 0)
		})
	}
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n2"].refuses["n1"] = true })
		all["n2"].StreamEnded(Process{Node: "n1", Incarnation: 7})
		wantCampaigns(t, "n3 reaches the leader", settled(all, 10*time.Second), 0, 0)
	})
	elect(t, []string{"n1", "n2", "n3", "n4", "n5"}, func(t *testing.T, all map[string]*voter) {
		for _, id := range []string{"n2", "n3"} {
			change(all, func() { all[id].refuses["n1"] = true })
			all[id].StreamEnded(Process{Node: "n1", Incarnation: 7})
		}
		wantCampaigns(t, "three of five reach the leader", settled(all, 10*time.Second), 0, 0, 0, 0)
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n3"].deaf = true })
		die(all, "n2")
		wantCampaigns(t, "no majority", settled(all, 10*time.Second), 0, 0)
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		die(all, "n2")
		change(all, func() { all["n3"].heard = time.Now().Add(time.Second) })
		wantCampaigns(t, "n3 hears the leader", settled(all, 500*time.Millisecond), 0, 0)
	})
	elect(t, []string{"n1", "n2", "n3", "n4", "n5"}, func(t *testing.T, all map[string]*voter) {
		change(all, func() {
			for _, id := range []string{"n2", "n3", "n4", "n5"} {
				all[id].leader = ""
			}
		})
		all["n2"].news.Set()
		wantCampaigns(t, "a leader that replies, and followers that have just started", settled(all, 500*time.Millisecond), 0, 0, 0, 0)
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		die(all)
		all["n2"].StreamEnded(Process{Node: "n3", Incarnation: 7})
		wantCampaigns(t, "a stream of another node", settled(all, 10*time.Second), 0, 0)
	})
}

// TestPortClosesAfterStreams: the port of a process that ends may close after its streams, within the 75 ms of the
// dials. A port that closes later proves nothing.
func TestPortClosesAfterStreams(t *testing.T) {
	for after, want := range map[time.Duration]int{70 * time.Millisecond: 1, 80 * time.Millisecond: 0, 700 * time.Millisecond: 0} {
		elect(t, three, func(t *testing.T, all map[string]*voter) {
			all["n2"].StreamEnded(Process{Node: "n1", Incarnation: 7})
			all["n3"].StreamEnded(Process{Node: "n1", Incarnation: 7})
			time.Sleep(after) // virtual: until the port closes
			die(all)
			wantCampaigns(t, after.String(), settled(all, time.Second), want, 0)
		})
	}
}

// TestLateAgreement: a candidate that has found the leader dead asks again soon, since replies may have been late.
func TestLateAgreement(t *testing.T) {
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n3"].deaf = true })
		die(all, "n2")
		wantCampaigns(t, "no reply", settled(all, 310*time.Millisecond), 0, 0)
		change(all, func() { all["n3"].deaf = false })
		wantCampaigns(t, "replies again", settled(all, 50*time.Millisecond), 1, 0)
	})
}

// TestNextProcess: a leader whose next process has its port is dead. The end of its earlier process is no proof against
// the next process, which leads in a later term.
func TestNextProcess(t *testing.T) {
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n1"].state, all["n1"].incarnation = raft.Follower, 8 })
		all["n2"].StreamEnded(Process{Node: "n1", Incarnation: 7})
		all["n3"].StreamEnded(Process{Node: "n1", Incarnation: 7})
		wantCampaigns(t, "the next process has the port", settled(all, 40*time.Millisecond), 1, 0)
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		all["n2"].StreamEnded(Process{Node: "n1", Incarnation: 7})
		all["n3"].StreamEnded(Process{Node: "n1", Incarnation: 7})
		wantCampaigns(t, "the process lives", settled(all, 200*time.Millisecond), 0, 0)
		change(all, func() {
			all["n1"].incarnation = 8
			for _, v := range all {
				v.now++
			}
		})
		all["n2"].news.Set()
		wantCampaigns(t, "the next process leads in a later term", settled(all, 5*time.Second), 0, 0)
	})
}

// TestFormerLeaderIsNotItsSuccessor: n1 leads in term 1, in another process than in term 0. The other nodes have no
// contact, and hear of the death of the former process, also before they know the leader of term 1: it does not count.
func TestFormerLeaderIsNotItsSuccessor(t *testing.T) {
	former := Process{Node: "n1", Incarnation: 7}
	question := func(term uint64) Question {
		return Question{From: "n2", Lost: Leader{former, term}, Term: 3, Index: 299}
	}
	for name, tell := range map[string]func(v *voter){
		"asked":         func(v *voter) { v.Judge(t.Context(), question(0)) },
		"its stream":    func(v *voter) { v.StreamEnded(former) },
		"knows already": func(*voter) {},
	} {
		elect(t, three, func(t *testing.T, all map[string]*voter) {
			n3 := all["n3"]
			change(all, func() {
				all["n1"].incarnation, n3.leader = 8, ""
				for _, v := range all {
					v.now = 1
				}
			})
			tell(n3)
			change(all, func() { n3.leader = "n1" })
			n3.news.Set()
			wantCampaigns(t, name, settled(all, 5*time.Second), 0, 0)
			if got := n3.Judge(t.Context(), question(0)); got != (Reply{}) {
				t.Errorf("%s: asked about the leader of term 0 in term 1: %+v", name, got)
			}
			if got := n3.Judge(t.Context(), question(1)); !got.Better {
				t.Errorf("%s: asked about the leader of its term, without contact: %+v", name, got)
			}
		})
	}
}

// TestProofIsOfOneTerm: a proof against a process does not count in a later term, which it leads.
func TestProofIsOfOneTerm(t *testing.T) {
	p := proofs{dead: map[string]death{}, identify: func(context.Context, string) (uint64, error) { return 0, syscall.ECONNREFUSED }}
	for i, term := range []uint64{3, 3, 4} {
		if dead := p.isDead(t.Context(), Leader{Process{Node: "n1", Incarnation: 7}, term}); dead != (term == 3) {
			t.Errorf("look %d, in term %d: dead %v", i, term, dead)
		}
	}
}

// TestOnePromise: a voter that has agreed to a candidate agrees to no worse candidate for a moment.
func TestOnePromise(t *testing.T) {
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		change(all, func() { all["n1"].unable, all["n1"].state, all["n1"].leader = errLost, raft.Follower, "" })
		ask := func(node string) bool {
			return all["n1"].Judge(t.Context(), Question{From: node, Term: 3, Index: 300}).Agrees
		}
		if !ask("n2") || ask("n3") {
			t.Error("a voter has not agreed to n2, or has agreed to n3 too")
		}
		if settled(all, promiseLasts+time.Millisecond); !ask("n3") {
			t.Error("the promise to n2 has no end")
		}
	})
}

// TestOneDeathAProcess: a process that comes to life again was not dead: further proofs against it
// count only after 30 s, then 60 s, and so on; those against its next process count at once.
func TestOneDeathAProcess(t *testing.T) {
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		reset := func(incarnation uint64) { // as by a firewall that refuses connections to a living leader
			change(all, func() {
				for _, v := range all {
					v.state, v.leader, v.refuses["n1"] = raft.Follower, "n1", true
				}
				all["n1"].state = raft.Leader
			})
			all["n2"].StreamEnded(Process{Node: "n1", Incarnation: incarnation})
			all["n3"].StreamEnded(Process{Node: "n1", Incarnation: incarnation})
		}
		reset(7)
		wantCampaigns(t, "the first proof", settled(all, time.Second/2), 1, 0)
		for range 280 {
			reset(7)
			wantCampaigns(t, "a second proof at once", settled(all, time.Second/10), 1, 0)
		}
		time.Sleep(3 * time.Second) // virtual
		reset(7)
		wantCampaigns(t, "a second proof after 31 s", settled(all, time.Second), 2, 0)
		time.Sleep(50 * time.Second) // virtual
		reset(7)
		wantCampaigns(t, "a third proof 51 s later", settled(all, time.Second), 2, 0)
		reset(8)
		wantCampaigns(t, "the next process", settled(all, time.Second), 3, 0)
	})
}

// TestFirstLeader: nodes without a leader agree at once after their start; of a cluster that forms
// all must agree; while an election is under way no node begins another one.
func TestFirstLeader(t *testing.T) {
	leaderless := func(all map[string]*voter) {
		change(all, func() {
			for _, v := range all {
				v.state, v.leader = raft.Follower, ""
			}
		})
	}
	elect(t, []string{"n1"}, func(t *testing.T, all map[string]*voter) {
		leaderless(all)
		all["n1"].news.Set()
		synctest.Wait()
		if all["n1"].count() != 1 {
			t.Error("a node alone did not campaign at once")
		}
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		leaderless(all)
		change(all, func() { all["n1"].deaf = true })
		all["n3"].news.Set()
		wantCampaigns(t, "n1 is away", settled(all, time.Millisecond), 1, 0)
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		leaderless(all)
		change(all, func() {
			for _, v := range all {
				v.term, v.index = 1, 1
			}
			all["n1"].deaf = true
		})
		all["n2"].news.Set()
		wantCampaigns(t, "n1 still forms", settled(all, 10*time.Second), 0, 0)
	})
	elect(t, three, func(t *testing.T, all map[string]*voter) {
		leaderless(all)
		for _, v := range all {
			v.Changed()
		}
		wantCampaigns(t, "an election is under way", settled(all, 90*time.Millisecond), 0, 0)
		if n := all["n1"].count(); n != 0 {
			t.Errorf("n1 campaigned %d times while an election is under way", n)
		}
		if got := settled(all, 200*time.Millisecond); got[0]+got[1]+all["n1"].count() != 1 {
			t.Errorf("after an election without a winner n1 campaigned %d times, n2 and n3 %v", all["n1"].count(), got)
		}
	})
}

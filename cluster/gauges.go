package cluster

import (
	"slices"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
)

// emit reports one value of a gauge.
type emit func(value float64, labels ...string)

// gauge is a value that is read when Prometheus asks for it.
type gauge struct {
	desc *prometheus.Desc
	read func(emit)
}

// labelled returns a gauge with a value for each value of a label.
func labelled(name, help, label string, read func(emit)) gauge {
	return gauge{prometheus.NewDesc("signalbox_"+name, help, []string{label}, nil), read}
}

// single returns a gauge with one value.
func single(name, help string, read func() float64) gauge {
	return gauge{prometheus.NewDesc("signalbox_"+name, help, nil, nil), func(out emit) { out(read()) }}
}

// collector implements [prometheus.Collector] for one node.
type collector struct {
	counted []prometheus.Collector
	gauges  []gauge
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		out <- g.desc
	}
	for _, counted := range c.counted {
		counted.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, g := range c.gauges {
		g.read(func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
		})
	}
	for _, counted := range c.counted {
		counted.Collect(out)
	}
}

// gauges lists the values that are read from a node, each with its help text.
func gauges(n *Node) []gauge {
	return slices.Concat(nodeGauges(n), itemGauges(n), memberGauges(n), raftGauges(n))
}

// nodeGauges lists the values of the node itself and of its state machine.
func nodeGauges(n *Node) []gauge {
	return []gauge{
		single("applied_index", "Index up to which this node's state machine has applied the log.",
			func() float64 { return float64(n.replica.Index()) }),
		single("cluster_time_seconds", "Cluster time as this node estimates it.",
			func() float64 { return float64(n.replica.EstimateMS()) / 1000 }),
		single("ready", "1 if this node is ready, else 0.", func() float64 { return truth(n.Ready()) }),
		single("waits_open", "Calls on this node that wait to be granted something.", func() float64 { return float64(n.requests.OpenWaits()) }),
		single("proposer_queue_commands", "Commands that wait on this node, as the leader, to be logged.",
			func() float64 {
				if t := n.running.Load().established(); t != nil {
					return float64(t.Waiting())
				}
				return 0
			}),
		single("log_write_stuck_seconds", "How long the write of the log that is under way has taken.",
			func() float64 { return stuckFor(n).Seconds() }),
		single("storage_free_bytes", "Free bytes on the disk of the data folder.", func() float64 { return float64(n.running.Load().space().Free) }),
		single("storage_low", "1 while this node, if it leads, takes only what keeps or ends leases because the disk is nearly full, else 0.",
			func() float64 { return truth(n.running.Load().space().Low) }),
		single("storage_reserve_reached", "1 while the disk is full down to the reserve, so that this node takes no writes if it leads, else 0.",
			func() float64 { return truth(n.running.Load().space().Spent) }),
		single("cluster_time_held", "1 while this node leads and holds cluster time because no writes can be taken, else 0.",
			func() float64 {
				t := n.running.Load().established()
				return truth(t != nil && t.TimeHeld())
			}),
		labelled("idempotency_keys", "What the table of idempotency keys has: keys, their bytes, marks of keys whose lease is over.", "of",
			func(out emit) {
				k := n.keys()
				out(float64(k.Keys), "keys")
				out(float64(k.Bytes), "bytes")
				out(float64(k.Marks), "marks")
			}),
		labelled("idempotency_keys_limit", "What it may have. Beyond it requests with new keys are refused.", "of",
			func(out emit) {
				k := n.keys()
				out(float64(k.MostKeys), "keys")
				out(float64(k.MostBytes), "bytes")
				out(float64(k.MostMarks), "marks")
			}),
		labelled("objects", "Objects in the state machine, by kind.", "kind",
			func(out emit) {
				var semaphores, sessions, leases, waiting int
				n.View(func(m *fsm.Machine) { semaphores, sessions, leases, waiting = m.Counts() })
				out(float64(semaphores), "semaphore")
				out(float64(sessions), "session")
				out(float64(leases), "lease")
				out(float64(waiting), "waiting")
				groups, returns := groupsOf(n)
				out(float64(groups), "group")
				out(float64(returns), "return")
			}),
	}
}

// itemGauges lists how much room items take.
func itemGauges(n *Node) []gauge {
	return []gauge{
		single("items", "Items in the state machine.", func() float64 { return float64(itemsOf(n).Items) }),
		single("item_bytes", "What items, and the texts of sessions that were opened to hold items, take of the 256 MiB that they may.",
			func() float64 { return float64(itemsOf(n).Bytes) }),
		single("item_watchers", "Requests on this node that wait for a change of items.", func() float64 { return float64(n.replica.ItemWatchers()) }),
	}
}

// itemsOf returns how much room items take on a node.
func itemsOf(n *Node) (now fsm.ItemsView) {
	n.View(func(m *fsm.Machine) { now = m.ItemCounts() })
	return now
}

// groupsOf returns the numbers of groups and of returns of all semaphores on a node.
func groupsOf(n *Node) (groups, returns int) {
	n.View(func(m *fsm.Machine) { groups, returns = m.GroupsInUse(), m.Returns() })
	return groups, returns
}

// memberGauges lists what the node knows about the other members.
func memberGauges(n *Node) []gauge {
	each := func(read func(probe.Seen) float64) func(emit) {
		return func(out emit) {
			if r := n.running.Load(); r != nil {
				for id, seen := range r.members.Seen() {
					out(read(seen), id)
				}
			}
		}
	}
	return []gauge{
		single("state_differs", "1 while the members' states differ without a majority and writes are refused, else 0.",
			func() float64 { r := n.running.Load(); return truth(r != nil && r.members.Split() != "") }),
		labelled("member_up", "1 if the other member replied when it was asked last, else 0.", "member",
			each(func(s probe.Seen) float64 { return truth(s.Up()) })),
		labelled("member_lag_entries", "By how many entries the other member's state machine trailed when it replied last.", "member",
			each(func(s probe.Seen) float64 { return float64(s.Lag) })),
		labelled("raft_members", "Members of the latest configuration, by whether they vote.", "voter",
			func(out emit) {
				servers := n.joining.Servers()
				voting := len(membership.Voters(servers))
				out(float64(voting), "yes")
				out(float64(len(servers)-voting), "no")
			}),
	}
}

// raftGauges lists the values that are read from Raft. There are no such values before Raft runs.
func raftGauges(n *Node) []gauge {
	ofRaft := func(name, help string, read func(r *raft.Raft) float64) gauge {
		return gauge{prometheus.NewDesc("signalbox_"+name, help, nil, nil), func(out emit) {
			if r := n.running.Load(); r != nil {
				out(read(r.raft))
			}
		}}
	}
	return []gauge{
		ofRaft("raft_leader", "1 if this node leads, else 0.", func(r *raft.Raft) float64 { return truth(r.State() == raft.Leader) }),
		ofRaft("raft_leader_known", "1 if this node knows a leader, else 0.", func(r *raft.Raft) float64 {
			_, id := r.LeaderWithID()
			return truth(id != "")
		}),
		ofRaft("raft_term", "Raft's current term.", func(r *raft.Raft) float64 { return float64(r.CurrentTerm()) }),
		ofRaft("raft_commit_index", "Index of the last entry that this node knows to be committed.",
			func(r *raft.Raft) float64 { return float64(r.CommitIndex()) }),
		ofRaft("raft_last_index", "Index of the last entry in this node's log.", func(r *raft.Raft) float64 { return float64(r.LastIndex()) }),
		ofRaft("raft_last_contact_seconds", "How long ago this node heard from the leader; 0 on the leader, -1 before the first time.",
			func(*raft.Raft) float64 {
				if contact := n.running.Load().lastContact(); contact >= 0 {
					return contact.Seconds()
				}
				return -1
			}),
		labelled("raft_state", "1 for the state that Raft is in.", "state", func(out emit) {
			if r := n.running.Load(); r != nil {
				now := r.raft.State()
				for _, state := range []raft.RaftState{raft.Follower, raft.Candidate, raft.Leader, raft.Shutdown} {
					out(truth(state == now), state.String())
				}
			}
		}),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

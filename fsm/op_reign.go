package fsm

import "fmt"

// Reign is the first entry of each leader: it names the term, so that every
// node knows that nothing proposed in an earlier term can still be applied,
// and brings the leader's limits.
type Reign struct {
	Term   uint64
	Leader string // node id
	Limits Limits
	// Jump is set once after a recovery that may have lost entries: the
	// counters of tokens, places and epochs skip 2^32, so that none is given twice.
	Jump bool
	// Cluster is the cluster's id, from level 1 on: the machine takes it when it
	// has none, and halts when it has another.
	Cluster ClusterID
	// Level is the feature level at which a cluster without an id begins.
	Level uint32
}

// Op is OpReign.
func (Reign) Op() Op { return OpReign }

func (c Reign) encode(e *encoder) {
	e.uint(c.Term)
	e.string(c.Leader)
	e.limits(c.Limits)
	e.bool(c.Jump)
	if e.feature >= 1 {
		e.buf = append(e.buf, c.Cluster[:]...)
		e.uint(uint64(c.Level))
	}
}

func (c Reign) needs() uint32 {
	if c.Level > 0 || c.Cluster != (ClusterID{}) {
		return 1
	}
	return 0
}

func decodeReign(d *decoder) Command {
	c := Reign{Term: d.uint(), Leader: d.string(), Limits: d.limits(), Jump: d.bool()}
	if d.feature >= 1 {
		copy(c.Cluster[:], d.bytes(uint64(len(c.Cluster))))
		c.Level = d.featureLevel()
	}
	return c
}

func (c Reign) apply(m *Machine) Result {
	switch {
	case c.Cluster == m.cluster:
	case m.cluster != ClusterID{}:
		panic(fmt.Sprintf("this state belongs to cluster %v, the entry to cluster %v", m.cluster, c.Cluster))
	default:
		m.cluster, m.feature = c.Cluster, max(m.feature, c.Level)
	}
	m.term, m.leader, m.limits = c.Term, c.Leader, c.Limits
	if c.Jump {
		m.tokens += reignJump
		m.places += reignJump
		m.epochs += reignJump
	}
	m.applied.Term, m.applied.Jump = c.Term, c.Jump
	return Result{Code: OK}
}

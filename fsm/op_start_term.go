package fsm

import (
	"crypto/sha256"
	"fmt"
)

// StartTerm is the first entry of each leader. It names the term, so that every node knows that commands proposed in
// earlier terms will not be applied any more. It carries the leader's limits.
type StartTerm struct {
	Term   uint64
	Leader string // node id
	Limits Limits
	// Jump is set once after a recovery that may have lost entries: the counters of tokens, places and epochs skip
	// 2^40, so that no value is used twice.
	Jump bool
	// Cluster is the id of the cluster. A machine without an id adopts it; a machine with another id halts.
	Cluster ClusterID
	// Level is the feature level at which a cluster without an id begins.
	Level uint32
}

// Op is OpStartTerm.
func (StartTerm) Op() Op          { return OpStartTerm }
func (StartTerm) names() []string { return nil }
func (StartTerm) session() uint64 { return 0 }

func (c StartTerm) encode(e *encoder) {
	e.uint(c.Term)
	e.string(c.Leader)
	e.limits(c.Limits)
	e.bool(c.Jump)
	e.buf = append(e.buf, c.Cluster[:]...)
	e.uint(uint64(c.Level))
}

func decodeStartTerm(d *decoder) Command {
	c := StartTerm{Term: d.Uint(), Leader: d.Text(), Limits: d.limits(), Jump: d.Bool()}
	copy(c.Cluster[:], d.Bytes(uint64(len(c.Cluster))))
	c.Level = d.featureLevel()
	return c
}

func (c StartTerm) apply(m *Machine) Result {
	switch {
	case c.Cluster == m.cluster:
	case m.cluster != ClusterID{}:
		panic(fmt.Sprintf("this state belongs to cluster %v, the entry to cluster %v", m.cluster, c.Cluster))
	default:
		m.cluster = c.Cluster
		m.feature = max(m.feature, c.Level)
	}
	m.term, m.leader, m.limits = c.Term, c.Leader, c.Limits
	if c.Jump {
		m.jumpCounters(termJump)
	}
	m.applied.Term, m.applied.Jump = c.Term, c.Jump
	return Result{Code: OK}
}

// jumpCounters makes the counters skip all numbers that lost entries may have used. Because lost entries may contain
// jumps too, a jump must be larger than the jumps that it may follow. Succeed has the smallest jump. After the folders
// of all nodes were put back, a StartTerm with a jump may follow a lost Succeed. Recovered, with one folder left, may
// follow both.
func (m *Machine) jumpCounters(by uint64) {
	m.tokens += by
	m.places += by
	m.epochs += by
	m.jumpChanges(by)
}

// Recovered turns the state into the first state of another cluster. Entries after this state may be lost, so the
// counters of tokens, places and epochs jump. It is not an operation: the caller must make the state the first snapshot
// of that cluster, because replicas of the former cluster do not apply this change.
func (m *Machine) Recovered(cluster ClusterID) {
	m.jumpCounters(recoveredJump)
	m.cluster = cluster
	sum := sha256.Sum256(append(m.hash[:], cluster[:]...))
	copy(m.hash[:], sum[:])
}

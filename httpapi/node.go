package httpapi

import (
	"context"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// Node is what the API needs of a cluster node; *cluster.Node has it. All its
// methods are safe for concurrent use.
type Node interface {
	Commands
	State
	Members
}

// Commands changes the replicated state.
type Commands interface {
	// Do performs one command: it blocks until the command is committed and
	// applied, and, for one that waits, up to call.Wait more. It ends early with
	// ctx's error when ctx ends.
	Do(ctx context.Context, call cluster.Call) (cluster.Reply, error)
	// DoMany performs commands in order in one round trip, without waits. Both
	// slices are as long as calls; a nil error means that the reply counts.
	DoMany(ctx context.Context, calls []cluster.Call) ([]cluster.Reply, []error)
	// DrawSession answers a random session id, 1 … 2^53-1. It does not block.
	DrawSession() uint64
}

// State reads the replicated state.
type State interface {
	// Read blocks until this node's own state is as recent as asked for.
	Read(ctx context.Context, c cluster.Consistency) (cluster.Reading, error)
	// View lends the state for as long as read runs. read must not block.
	View(read func(m *fsm.Machine))
	// Changed answers a channel that is closed at the next applied change of a
	// semaphore. stop must be called once.
	Changed(name string) (changed <-chan struct{}, stop func())
	// EventsAfter answers a page of what happened after an event. It does not block.
	EventsAfter(after cluster.EventID) (cluster.EventPage, error)
}

// Members tells and changes who is in the cluster.
type Members interface {
	// Status does not block, and answers without a leader too.
	Status() cluster.Status
	// AddMember blocks until the member has a vote, or ctx ends.
	AddMember(ctx context.Context, id, address string) error
	// RemoveMember blocks until the member is out of the configuration.
	RemoveMember(ctx context.Context, id string) error
	// TransferLeadership hands over to a member, or to any for an empty id.
	TransferLeadership(ctx context.Context, id string) error
	// RaiseLevel blocks until the feature level is raised.
	RaiseLevel(ctx context.Context, level uint32) error
	// Checks answers what readiness depends on. It does not block.
	Checks() []cluster.Check
}

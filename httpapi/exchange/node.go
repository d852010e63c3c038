package exchange

import (
	"context"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// Node is what the APIs need of a cluster node; *cluster.Node implements it. All
// methods are safe for concurrent use.
type Node interface {
	Commands
	State
	Members
	Backups
}

// Commands changes the replicated state.
type Commands interface {
	// Do performs one command. It blocks until the command is committed and applied and, if the command waits, for up
	// to call.Wait more. It fails with ctx's error when ctx ends.
	Do(ctx context.Context, call calls.Call) (*calls.Reply, error)
	// DoMany performs commands in order in one round trip. No command waits. Both slices are as long as list; a reply
	// is valid if its error is nil.
	DoMany(ctx context.Context, list []calls.Call) ([]calls.Reply, []error)
	// DrawSession returns a random session id from 1 to 2^53-1. It does not block.
	DrawSession() uint64
}

// State reads the replicated state.
type State interface {
	// Read blocks until this node's own state is as recent as c requires.
	Read(ctx context.Context, c calls.Consistency) (calls.Reading, error)
	// View calls read with the state. read must not block, and must not use the machine after it returns.
	View(read func(m *fsm.Machine))
	// Changed returns a channel that is closed at the next applied change of a
	// semaphore. The caller must call stop once.
	Changed(name string) (changed <-chan struct{}, stop func())
	// WatchItems returns a watch of the item with this name or, if below is set, of all items whose names begin with
	// name. The caller must call its Stop once.
	WatchItems(name string, below bool) *replica.ItemWatch
	// HoldersChanged returns a channel that is closed when the state's HoldersIndex changes. Call it before View, so
	// that no change is missed.
	HoldersChanged() <-chan struct{}
	// EventsAfter returns a page of the events after an id. It does not block.
	EventsAfter(after replica.EventID) (replica.EventPage, error)
	// EventsBefore returns a page of the log entries with events before an index. It does not block.
	EventsBefore(index uint64) []replica.EventEntry
}

// itemsPerView bounds the items that ItemsChanged reads in one View, because a View delays the applying of entries.
// [fsm.Machine.DeletesIndex] bounds the folders.
const itemsPerView = 10_000

// ItemsChanged reports whether an item whose name begins with a prefix was changed or deleted after an index. It reads
// the items in steps, between which the state may change, so a caller that must not miss a change also watches the
// items. If no item of the state has changed after the index, it reads no items.
func ItemsChanged(node State, prefix string, after uint64) (changed bool) {
	node.View(func(m *fsm.Machine) { changed = m.ItemsIndex("") > after })
	if prefix == "" || !changed || DeletesIndex(node, prefix, after) > after {
		return changed
	}
	changed = false
	for from, more := "", true; more && !changed; {
		node.View(func(m *fsm.Machine) {
			visited := 0
			for i := range m.ItemsAfter(prefix, from) {
				from, changed = i.Name, i.Version > after
				if visited++; changed || visited == itemsPerView {
					return
				}
			}
			more = false
		})
	}
	return changed
}

// DeletesIndex returns the highest index of a delete of an item whose name begins with a prefix. It reads the state in
// the steps of [fsm.Machine.DeletesIndex], and stops at the first index above enough.
func DeletesIndex(node State, prefix string, enough uint64) (index uint64) {
	for from, more := "", true; more && index <= enough; more = from != "" {
		node.View(func(m *fsm.Machine) {
			var part uint64
			part, from = m.DeletesIndex(prefix, from)
			index = max(index, part)
		})
	}
	return index
}

// Members reports and changes the members of the cluster.
type Members interface {
	// Status returns what this node knows of the cluster, even if there is no leader. It does not block.
	Status() cluster.Status
	// AddMember blocks until the member has a vote, or ctx ends.
	AddMember(ctx context.Context, id, address string) error
	// RemoveMember blocks until the member is removed from the configuration.
	RemoveMember(ctx context.Context, id string) error
	// TransferLeadership transfers the leadership to a member or, if id is "", to any member.
	TransferLeadership(ctx context.Context, id string) error
	// RaiseLevel blocks until the feature level is raised.
	RaiseLevel(ctx context.Context, level uint32) error
	// Checks returns the conditions of readiness. It does not block.
	Checks() []cluster.Check
}

// Backups makes backups of the replicated state, and restores them.
type Backups interface {
	// Backup returns a backup of the state. It blocks for a linearizable read.
	Backup(ctx context.Context) (*backup.Backup, error)
	// Restore reads a backup and replaces the cluster's state by it. It blocks until the restored state applies.
	Restore(ctx context.Context, from io.Reader, order backup.Order) (backup.Restored, error)
}

// Route is one route of an API.
type Route struct {
	Method, Path string
	Handler      echo.HandlerFunc
}

// On returns a Route.
func On(method, path string, handler echo.HandlerFunc) Route { return Route{method, path, handler} }

// Dialect is the API of another system, which httpapi serves besides the native API. The function New of the dialect's
// package returns it.
type Dialect struct {
	Routes []Route
	// Render replies to a failed request of these routes, in the dialect's form. err may come from a guard that ran
	// before the route's handler.
	Render func(c echo.Context, err error) error
	// Token returns the token that a request carries in the dialect's own way, or "". It takes precedence over the
	// token of Authorization. Token may be nil.
	Token      func(r *http.Request) string
	Collectors []prometheus.Collector // shown by GET /metrics
}

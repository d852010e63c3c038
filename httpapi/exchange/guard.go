package exchange

import (
	"context"
	"io"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
)

// guarded is a Node that does what the identity of a request may do: every command of
// every API passes it. Only State is embedded, so that a new method that changes something is
// written here with its rule. State is this node's whole state, and the APIs ask
// Rights.Caller which part of it a reply may have.
type guarded struct {
	State
	node   Node
	tokens *access.Tokens
}

// authorized returns a call as its identity gives it, or the refusal.
func (g *guarded) authorized(ctx context.Context, call cluster.Call) (cluster.Call, error) {
	id := access.Of(ctx)
	may := id.May
	if ctx.Value(derivedKey{}) != nil {
		may = id.MayDerived
	}
	if err := may(call.Command); err != nil {
		g.tokens.Count(err)
		return call, err
	}
	if deliver, ok := call.Command.(fsm.ListDeliver); ok && !g.seesList(id, deliver.Session) {
		err := &access.Denied{AllNames: true}
		g.tokens.Count(err)
		return call, err
	}
	call.Owner, call.Limits = id.Owner(call.Command), id.Limits
	if call.Key != "" && call.Owner == "" {
		call.Key = id.Name + " " + call.Key // the owner would have set its keys apart
	}
	return call, nil
}

// derivedKey marks the contexts of Derived.
type derivedKey struct{}

// Derived returns a context for Node.Do, for a dialect that has derived the id of the command's
// session from the names in the command.
func Derived(ctx context.Context) context.Context { return context.WithValue(ctx, derivedKey{}, true) }

// seesList reports whether an identity may read every semaphore on the wait list of a
// session that it finds, by this node's state. A delivery names no semaphore, and its reply
// names those that are ready. A session from before the tokens, or an identity that has
// fewer prefixes now, may have others on its list.
func (g *guarded) seesList(id *access.Identity, session uint64) (sees bool) {
	if id.Prefixes == nil {
		return true
	}
	g.View(func(m *fsm.Machine) {
		owner, _ := m.OwnerOf(session)
		sees = !id.SeesSession(owner) ||
			!slices.ContainsFunc(m.WaitList(session), func(e fsm.WaitListView) bool { return !id.Sees(e.Semaphore) })
	})
	return sees
}

// needs returns nil if the identity of a request has a scope.
func (g *guarded) needs(ctx context.Context, scope access.Scope) error {
	err := access.Of(ctx).Needs(scope)
	if err != nil {
		g.tokens.Count(err)
	}
	return err
}

// Do implements Commands.
func (g *guarded) Do(ctx context.Context, call cluster.Call) (*cluster.Reply, error) {
	call, err := g.authorized(ctx, call)
	if err != nil {
		return &cluster.Reply{}, err
	}
	return g.node.Do(ctx, call)
}

// DoMany implements Commands. A call that is refused stops no other.
func (g *guarded) DoMany(ctx context.Context, calls []cluster.Call) ([]cluster.Reply, []error) {
	replies, errs := make([]cluster.Reply, len(calls)), make([]error, len(calls))
	var allowed []cluster.Call
	var places []int // of the allowed in calls
	for i := range calls {
		call, err := g.authorized(ctx, calls[i])
		if errs[i] = err; err == nil {
			allowed, places = append(allowed, call), append(places, i)
		}
	}
	if len(allowed) == 0 {
		return replies, errs
	}
	done, failed := g.node.DoMany(ctx, allowed)
	for i, place := range places {
		replies[place], errs[place] = done[i], failed[i]
	}
	return replies, errs
}

// DrawSession implements Commands.
func (g *guarded) DrawSession() uint64 { return g.node.DrawSession() }

// Status implements Members.
func (g *guarded) Status() cluster.Status { return g.node.Status() }

// AddMember implements Members.
func (g *guarded) AddMember(ctx context.Context, id, address string) error {
	if err := g.needs(ctx, access.Admin); err != nil {
		return err
	}
	return g.node.AddMember(ctx, id, address)
}

// RemoveMember implements Members.
func (g *guarded) RemoveMember(ctx context.Context, id string) error {
	if err := g.needs(ctx, access.Admin); err != nil {
		return err
	}
	return g.node.RemoveMember(ctx, id)
}

// TransferLeadership implements Members.
func (g *guarded) TransferLeadership(ctx context.Context, id string) error {
	if err := g.needs(ctx, access.Admin); err != nil {
		return err
	}
	return g.node.TransferLeadership(ctx, id)
}

// RaiseLevel implements Members.
func (g *guarded) RaiseLevel(ctx context.Context, level uint32) error {
	if err := g.needs(ctx, access.Admin); err != nil {
		return err
	}
	return g.node.RaiseLevel(ctx, level)
}

// Backup implements Backups.
func (g *guarded) Backup(ctx context.Context) (*backup.Backup, error) {
	if err := g.needs(ctx, access.Admin); err != nil {
		return nil, err
	}
	return g.node.Backup(ctx)
}

// Restore implements Backups.
func (g *guarded) Restore(ctx context.Context, from io.Reader, order backup.Order) (backup.Restored, error) {
	if err := g.needs(ctx, access.Admin); err != nil {
		return backup.Restored{}, err
	}
	return g.node.Restore(ctx, from, order)
}

// Checks implements Members.
func (g *guarded) Checks() []cluster.Check { return g.node.Checks() }

// Rights says what the identity of a request may read. It is safe for concurrent use.
type Rights struct {
	tokens *access.Tokens // nil: every request may read everything
}

// Caller returns the identity of a request: Everyone on a node without tokens. It is
// never nil.
func (r Rights) Caller(c echo.Context) *access.Identity {
	if r.tokens == nil {
		return access.Everyone
	}
	return access.Of(c.Request().Context())
}

// IsAdmin reports whether a request may do what needs the scope admin. The node refuses
// other clients, and the audit log has the attempt; a handler that looks at the state before
// it asks the node must not show them what it found.
func (r Rights) IsAdmin(c echo.Context) bool { return r.Caller(c).Needs(access.Admin) == nil }

// MayName returns nil if a request may name a semaphore, or the refusal. A read asks it
// before it looks at the state; the node asks it for commands.
func (r Rights) MayName(c echo.Context, name string) error {
	return r.counted(r.Caller(c).MayName(name))
}

// MaySeeAll returns nil if a reply may have the semaphores of every name, or the refusal.
func (r Rights) MaySeeAll(c echo.Context) error { return r.counted(r.Caller(c).SeesAll()) }

func (r Rights) counted(err error) error {
	if err != nil {
		r.tokens.Count(err)
	}
	return err
}

// FindsSession reports whether a list may show a request a living session.
func (r Rights) FindsSession(c echo.Context, m *fsm.Machine, id uint64) bool {
	owner, known := m.OwnerOf(id)
	return known && r.Caller(c).FindsSession(owner)
}

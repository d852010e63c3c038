package exchange

import (
	"context"
	"io"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
)

// guarded is a Node that checks every command of every API against the identity of its request. Only State is
// embedded, so that each new method that changes state has to be written here with its check. State shows the whole
// state of this node; an API filters its reply with Rights.Caller.
type guarded struct {
	State
	node   Node
	tokens *access.Tokens
}

// authorized returns a call with the owner and the limits of its identity, or a refusal.
func (g *guarded) authorized(ctx context.Context, call calls.Call) (calls.Call, error) {
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
		call.Key = id.Name + " " + call.Key // without an owner, keys of different identities would collide
	}
	return call, nil
}

type derivedKey struct{}

// Derived returns a context for Node.Do. A dialect uses it to tell that it has derived the session's id from names in
// the command. The rights to these names then cover the session too, see Identity.MayDerived.
func Derived(ctx context.Context) context.Context { return context.WithValue(ctx, derivedKey{}, true) }

// seesList reports whether an identity may see every semaphore on the wait list of a session, by this node's state. A
// ListDeliver names no semaphore, but its reply names the completed semaphores. The list may have a semaphore that the
// identity has no right to see: the session may be older than the tokens, or the identity may have lost prefixes. If
// the identity has no right to the session, seesList returns true, since the state machine refuses the command.
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

// asAdmin calls do if the identity of the request has the scope admin, or returns a refusal.
func (g *guarded) asAdmin(ctx context.Context, do func() error) error {
	if err := access.Of(ctx).Needs(access.Admin); err != nil {
		g.tokens.Count(err)
		return err
	}
	return do()
}

func (g *guarded) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	call, err := g.authorized(ctx, call)
	if err != nil {
		return &calls.Reply{}, err
	}
	return g.node.Do(ctx, call)
}

// DoMany performs the allowed calls. A refused call does not stop the other calls.
func (g *guarded) DoMany(ctx context.Context, list []calls.Call) ([]calls.Reply, []error) {
	replies, errs := make([]calls.Reply, len(list)), make([]error, len(list))
	var allowed []calls.Call
	var places []int // index in list of each allowed call
	for i := range list {
		call, err := g.authorized(ctx, list[i])
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

func (g *guarded) DrawSession() uint64 { return g.node.DrawSession() }

func (g *guarded) Status() cluster.Status { return g.node.Status() }

func (g *guarded) AddMember(ctx context.Context, id, address string) error {
	return g.asAdmin(ctx, func() error { return g.node.AddMember(ctx, id, address) })
}

func (g *guarded) RemoveMember(ctx context.Context, id string) error {
	return g.asAdmin(ctx, func() error { return g.node.RemoveMember(ctx, id) })
}

func (g *guarded) TransferLeadership(ctx context.Context, id string) error {
	return g.asAdmin(ctx, func() error { return g.node.TransferLeadership(ctx, id) })
}

func (g *guarded) RaiseLevel(ctx context.Context, level uint32) error {
	return g.asAdmin(ctx, func() error { return g.node.RaiseLevel(ctx, level) })
}

func (g *guarded) Backup(ctx context.Context) (made *backup.Backup, err error) {
	err = g.asAdmin(ctx, func() (err error) {
		made, err = g.node.Backup(ctx)
		return err
	})
	return made, err
}

func (g *guarded) Restore(ctx context.Context, from io.Reader, order backup.Order) (done backup.Restored, err error) {
	err = g.asAdmin(ctx, func() (err error) {
		done, err = g.node.Restore(ctx, from, order)
		return err
	})
	return done, err
}

func (g *guarded) Checks() []cluster.Check { return g.node.Checks() }

// Rights tells what the identity of a request may read. It is safe for concurrent use.
type Rights struct {
	tokens *access.Tokens // nil: every request may read everything
}

// Caller returns the identity of a request, never nil. On a node without tokens it is Everyone.
func (r Rights) Caller(c echo.Context) *access.Identity {
	if r.tokens == nil {
		return access.Everyone
	}
	return access.Of(c.Request().Context())
}

// IsAdmin reports whether a request has the scope admin. The node checks the scope too, and audits the attempt. A
// handler that reads the state before it calls the node calls IsAdmin first, so that it does not show the state to other
// identities.
func (r Rights) IsAdmin(c echo.Context) bool { return r.Caller(c).Needs(access.Admin) == nil }

// MayName returns a refusal if a request may not name a semaphore. A read calls MayName before it reads the state. The
// type guarded checks the names of commands.
func (r Rights) MayName(c echo.Context, name string) error {
	return r.counted(r.Caller(c).MayName(name))
}

// MaySeeAll returns a refusal if the identity of a request may not see all names.
func (r Rights) MaySeeAll(c echo.Context) error { return r.counted(r.Caller(c).SeesAll()) }

func (r Rights) counted(err error) error {
	if err != nil {
		r.tokens.Count(err)
	}
	return err
}

// FindsSession reports whether a list may show this session to the request.
func (r Rights) FindsSession(c echo.Context, m *fsm.Machine, id uint64) bool {
	owner, known := m.OwnerOf(id)
	return known && r.Caller(c).FindsSession(owner)
}

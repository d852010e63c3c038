package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/signalbox/signalbox/fsm"
)

// Scope is a set of rights. Each scope includes those below it.
type Scope int

// The scopes.
const (
	Metrics Scope = 1 // GET /metrics alone
	Read    Scope = 2 // semaphores, events
	Use     Scope = 3 // sessions and leases; creates, changes and deletes semaphores
	Admin   Scope = 4 // others' sessions, members, levels, backups
)

var scopeNames = map[Scope]string{Metrics: "metrics", Read: "read", Use: "use", Admin: "admin"}

// String returns the name of the scope, as files have it.
func (s Scope) String() string { return scopeNames[s] }

// Identity is one client of the service: a name that tokens and certificates stand for, with its rights. It
// never changes.
type Identity struct {
	Name  string // owns sessions and idempotency keys; empty: every session is found
	Scope Scope
	// Prefixes begin the names that it may use. They are sorted, and no prefix is the beginning of another;
	// nil stands for every name.
	Prefixes []string
	Limits   fsm.OwnerLimits // of its records in the cluster
	// PerSecond is how many requests a second this node takes, with bursts of as many; 0: no limit.
	PerSecond int64
	// Watchers is how many streams of events and waits for a change it may have on this node; 0: half of the
	// node's limit.
	Watchers int64

	rate     *rate.Limiter // nil without a limit
	watching *atomic.Int64 // open watchers; nil: no limit
}

var (
	// Everyone is the identity of each request to a node without tokens.
	Everyone = &Identity{Scope: Admin}
	// Anonymous is the identity of a request without a token. It may use no name.
	Anonymous = &Identity{Prefixes: []string{}}
)

// Denied is the refusal of a request that its identity may not make. Needs is the scope that would do;
// Semaphore is the name that no prefix covers; AllNames is set if the reply has names of all prefixes, Unnamed
// if no prefix could cover a name of the request. Without a member, no identity may make the request.
type Denied struct {
	Needs, Has Scope
	Semaphore  string
	AllNames   bool
	Unnamed    bool
}

// Error is a sentence for the client.
func (d *Denied) Error() string {
	switch {
	case d.Semaphore != "":
		return "No prefix of this identity covers the name. An operator adds prefixes to its token."
	case d.AllNames:
		return "This concerns the names of all prefixes, and the identity may not read all."
	case d.Unnamed:
		return "This names no semaphore that a prefix of this identity could cover: a restore names its leases, and a session with an id derived from names is reached through its own interface."
	case d.Needs == 0:
		return "No client may ask for this."
	}
	return fmt.Sprintf("This needs the scope %v, and the identity has %v. An operator changes the scopes of its token.", d.Needs, d.Has)
}

// Needs returns nil if the identity has a scope, or the refusal.
func (id *Identity) Needs(scope Scope) error {
	if id.Scope >= scope {
		return nil
	}
	return &Denied{Needs: scope, Has: id.Scope}
}

// Sees reports whether the identity may read the semaphore of a name, which need not exist.
func (id *Identity) Sees(name string) bool {
	return id.Prefixes == nil || slices.ContainsFunc(id.Prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// MayName returns nil if the identity may name a semaphore in a request, or the refusal, which does not
// depend on whether the semaphore exists.
func (id *Identity) MayName(name string) error {
	if id.Sees(name) {
		return nil
	}
	if name == "" { // the beginning of every name
		return &Denied{AllNames: true}
	}
	return &Denied{Semaphore: name}
}

// SeesAll returns nil if the identity may read the semaphores of every name, or the refusal.
func (id *Identity) SeesAll() error {
	if id.Prefixes == nil {
		return nil
	}
	return &Denied{AllNames: true}
}

// SeesSession reports whether the identity may read a session of an owner, whose id it names. A session
// without an owner is from before the cluster had tokens: every client that knows its id may read it. Of each
// session, also of a session that it owns, the identity reads the semaphores that it Sees.
func (id *Identity) SeesSession(owner string) bool {
	return id.FindsSession(owner) || id.Scope >= Read && owner == ""
}

// FindsSession reports whether lists and events show the identity a session of an owner.
func (id *Identity) FindsSession(owner string) bool {
	return id.Scope == Admin || id.Scope >= Read && owner == id.Name
}

// SeesID reports whether semaphores and their events show the identity the id of a session of an owner. A
// client that knows the id of a session without an owner can take it over, so only admins see such ids; an id
// of another owner is of no use to the identity.
func (id *Identity) SeesID(owner string) bool { return owner != "" || id.Scope == Admin }

// Narrow returns the prefixes of the names that begin with prefix and that the identity may read: sorted, and
// no prefix is the beginning of another.
func (id *Identity) Narrow(prefix string) []string {
	if id.Prefixes == nil {
		return []string{prefix}
	}
	var narrowed []string
	for _, allowed := range id.Prefixes {
		switch {
		case strings.HasPrefix(prefix, allowed):
			return []string{prefix}
		case strings.HasPrefix(allowed, prefix):
			narrowed = append(narrowed, allowed)
		}
	}
	return narrowed
}

// TakesRequest reports whether the rate of the identity's requests allows another request.
func (id *Identity) TakesRequest() bool { return id.rate == nil || id.rate.Allow() }

// Watch counts a watcher until the caller calls leave; the caller calls it once. It fails if the identity already has
// limit watchers. limit is id.Watchers or, if that is 0, defaultLimit. Everyone, which has no counter, never fails.
func (id *Identity) Watch(defaultLimit int64) (leave func(), limit int64, ok bool) {
	limit = cmp.Or(id.Watchers, defaultLimit)
	if id.watching == nil {
		return func() {}, limit, true
	}
	if id.watching.Add(1) > limit {
		id.watching.Add(-1)
		return nil, limit, false
	}
	return func() { id.watching.Add(-1) }, limit, true
}

// equal reports whether two identities have the same name and rights.
func (id *Identity) equal(other *Identity) bool {
	return id.Name == other.Name && id.Scope == other.Scope && (id.Prefixes == nil) == (other.Prefixes == nil) &&
		slices.Equal(id.Prefixes, other.Prefixes) && id.Limits == other.Limits && id.PerSecond == other.PerSecond && id.Watchers == other.Watchers
}

// identityKey is the key of an Identity in a context.
type identityKey struct{}

// With returns a context with the identity of a request.
func With(ctx context.Context, id *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// Of returns the identity in a request's context, or Anonymous if it has no identity.
func Of(ctx context.Context) *Identity {
	if id, ok := ctx.Value(identityKey{}).(*Identity); ok {
		return id
	}
	return Anonymous
}

package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// Each option implements the interfaces of the calls that accept it, so the compiler rejects it in other calls.

// PutOption is an option of Put: Permits, Level, NoLevel, Metadata, OnlyNew, OnlyExisting, Unchanged, Epoch, and each
// SettingOption.
type PutOption interface {
	put(*calls.Call, map[string]any)
}

// CreateOption is an option of Create: Level, Metadata, and each SettingOption.
type CreateOption interface{ create(map[string]any) }

// ReadOption is an option of Get and Watch: Stale, MinIndex, Epoch, Holders, Waiters.
type ReadOption interface{ read(url.Values) }

// ListOption is an option of List: Stale, MinIndex, PageSize.
type ListOption interface{ list(url.Values) }

// ReadListOption is an option of Get, Watch, List, ListGroups and GetGroup.
type ReadListOption interface {
	ReadOption
	ListOption
	GroupsOption
}

// GroupsOption is an option of ListGroups and GetGroup: Stale, MinIndex, Epoch. ListGroups also takes PageSize and
// OnlyWaiting.
type GroupsOption interface{ groups(url.Values) }

// PageOption is an option of List and ListGroups.
type PageOption interface {
	ListOption
	GroupsOption
}

// CallOption is the option Epoch of Delete, Up, SetValue, Pause, Resume, SetGroupLimit
// and ClearGroupLimit.
type CallOption interface{ call(*calls.Call) }

// WaitListOption is an option of AddToWaitList and RemoveFromWaitList: Group, Epoch.
type WaitListOption interface{ waitList(*calls.Call) }

// DownOption is an option of Down and TryDown: Partial, Group, HeadStart, Epoch.
type DownOption interface{ down(*oneShot) }

// AcquireOption is an option of the Acquire and TryAcquire of a Session: Count, Group,
// HeadStart, Epoch.
type AcquireOption interface{ acquire(*acquiring) }

// LeaseOption is an option of the Acquire and TryAcquire of a Client: Count, Group, HeadStart,
// Epoch, TTL, Metadata, Margin.
type LeaseOption interface{ lease(*oneShot) }

// Permits is the total number of permits of a semaphore. A new semaphore needs it; 0 is allowed.
func Permits(n int64) PutOption {
	return putOption(func(_ *calls.Call, body map[string]any) { body["permits"] = n })
}

type putOption func(*calls.Call, map[string]any)

func (set putOption) put(k *calls.Call, body map[string]any) { set(k, body) }

// LevelOption sets a level.
type LevelOption interface {
	PutOption
	CreateOption
}

// Level places a semaphore in the lock hierarchy. A session may ask only for semaphores whose levels are strictly
// below the levels of all its leases, so that deadlocks are impossible.
func Level(n int32) LevelOption { return level{&n} }

// NoLevel takes a semaphore out of the lock hierarchy.
func NoLevel() PutOption { return level{} }

type level struct{ n *int32 }

func (l level) put(_ *calls.Call, body map[string]any) { l.create(body) }
func (l level) create(body map[string]any)             { body["level"] = l.n }

// Metadata is text about a semaphore, session or lease, for people: up to 16 pairs, 1,024 bytes in all. It replaces
// the previous metadata; nil clears it.
type Metadata map[string]string

func (m Metadata) put(_ *calls.Call, body map[string]any) { m.create(body) }
func (m Metadata) create(body map[string]any)             { body["metadata"] = map[string]string(m) }
func (m Metadata) lease(o *oneShot)                       { o.life.Metadata = m }

// OnlyNew makes a Put fail with ErrPreconditionFailed if the semaphore exists.
func OnlyNew() PutOption {
	return putOption(func(k *calls.Call, _ map[string]any) { k.Header = map[string][]string{"If-None-Match": {"*"}} })
}

// OnlyExisting makes a Put fail with ErrUnknownSemaphore if the semaphore does not exist.
func OnlyExisting() PutOption {
	return putOption(func(k *calls.Call, _ map[string]any) { k.Method = http.MethodPatch })
}

// Unchanged makes a Put fail with ErrPreconditionFailed if s no longer describes the semaphore: it was deleted since s
// was read, or its permits, level or metadata differ.
func Unchanged(s *Semaphore) PutOption {
	tag := []string{fmt.Sprintf("\"%d.%d\"", s.Epoch, s.Settings)}
	return putOption(func(k *calls.Call, _ map[string]any) { k.Header = http.Header{"If-Match": tag} })
}

// EpochOption names an epoch.
type EpochOption interface {
	PutOption
	ReadOption
	GroupsOption
	CallOption
	WaitListOption
	DownOption
	AcquireOption
	LeaseOption
}

// Epoch makes a call fail with ErrPreconditionFailed unless the semaphore has this Semaphore.Epoch. A semaphore that
// is deleted and created again has another epoch.
func Epoch(n uint64) EpochOption { return epoch(n) }

type epoch uint64

func (n epoch) read(query url.Values)               { query.Set("epoch", strconv.FormatUint(uint64(n), 10)) }
func (n epoch) put(k *calls.Call, _ map[string]any) { n.call(k) }
func (n epoch) groups(query url.Values)             { n.read(query) }
func (n epoch) waitList(k *calls.Call)              { n.call(k) }
func (n epoch) down(o *oneShot)                     { n.call(&o.call) }
func (n epoch) acquire(a *acquiring)                { n.call(&a.call) }
func (n epoch) lease(o *oneShot)                    { n.call(&o.call) }
func (n epoch) call(k *calls.Call)                  { n.read(queryOfCall(k)) }

// queryOfCall returns the query of a call, and makes it if it is nil.
func queryOfCall(k *calls.Call) url.Values {
	if k.Query == nil {
		k.Query = url.Values{}
	}
	return k.Query
}

// Partial makes a Down take fewer permits than it asks for, as soon as at least one is available.
func Partial() DownOption { return partial{} }

type partial struct{}

func (partial) down(o *oneShot) { o.body["partial"] = true }

// CountOption sets a count.
type CountOption interface {
	AcquireOption
	LeaseOption
}

// Count is how many permits to acquire, by default 1. They are granted all together.
func Count(n int64) CountOption { return count(n) }

type count int64

func (n count) acquire(a *acquiring) { a.count = int64(n) }
func (n count) lease(o *oneShot)     { o.count = int64(n) }

// TTL is how long a lease of Client.Acquire lives without a renewal, by default 30 s. The Client renews the lease
// every third of it.
func TTL(d time.Duration) LeaseOption { return leaseOption(func(o *oneShot) { o.life.TTL = d }) }

type leaseOption func(*oneShot)

func (set leaseOption) lease(o *oneShot) { set(o) }

// Margin makes a lease of Client.Acquire count as lost that long before its deadline, see SessionOptions.Margin.
func Margin(d time.Duration) LeaseOption {
	return leaseOption(func(o *oneShot) { o.life.Margin = d })
}

type readOption struct{ name, value string }

func (o readOption) read(query url.Values) { query.Set(o.name, o.value) }

type listOption struct{ readOption }

func (o listOption) list(query url.Values)   { o.read(query) }
func (o listOption) groups(query url.Values) { o.read(query) }

// Stale reads the state of the node that replies, without asking the leader. This is faster and needs no majority, but
// the state may be old.
func Stale() ReadListOption { return listOption{readOption{"consistency", "stale"}} }

// MinIndex makes a read wait until the node that replies has applied this log index. With Stale, it lets a client see
// its own writes.
func MinIndex(n uint64) ReadListOption {
	return listOption{readOption{"min_index", strconv.FormatUint(n, 10)}}
}

// PageSize is how many members of a list are read in one HTTP request: 1 to 1,000, by default 100.
func PageSize(n int) PageOption { return listOption{readOption{"limit", strconv.Itoa(n)}} }

// Holders bounds the list of a semaphore's holders: 0 to 1,000, by default 100.
func Holders(n int) ReadOption { return readOption{"holders", strconv.Itoa(n)} }

// Waiters bounds the list of a semaphore's waiters: 0 to 1,000, by default 100.
func Waiters(n int) ReadOption { return readOption{"waiters", strconv.Itoa(n)} }

//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// kinds and causes are the names that events have.
var kinds, causes = func() (map[string]fsm.EffectKind, map[string]fsm.Cause) {
	kinds, causes := map[string]fsm.EffectKind{}, map[string]fsm.Cause{}
	for k := fsm.EffectCreated; k <= fsm.EffectItemDeleted; k++ {
		kinds[k.String()] = k
	}
	for c := fsm.CauseExpired; c <= fsm.CauseResized; c++ {
		causes[c.String()] = c
	}
	kinds["expired"], kinds["revoked"] = fsm.EffectReleased, fsm.EffectReleased
	return kinds, causes
}()

// effect returns the effect of the state machine that an event describes. An event does not show whether a request for
// one semaphore was made alone or for several; the checks don't need that.
func effect(e *operator.Event) (fsm.Effect, error) {
	kind, known := kinds[e.Kind]
	cause, named := causes[e.Cause]
	if !known || e.Cause != "" && !named {
		return fsm.Effect{}, fmt.Errorf("an event %q with cause %q", e.Kind, e.Cause)
	}
	f := fsm.Effect{Kind: kind, Cause: cause, Unowned: e.Unowned, Partial: e.Partial, Listed: e.Listed, OneShot: e.OneShot,
		Semaphore: e.Semaphore, Epoch: e.Epoch, Place: e.Place, Token: e.Token, Count: e.Count, TTLMS: e.TTL.Milliseconds(),
		Details: &fsm.EffectDetails{Permits: e.Permits, Offset: e.Offset, Level: e.Level, Reason: e.Reason}}
	switch e.Mode {
	case "all":
		f.Mode = fsm.All
	case "any":
		f.Mode = fsm.Any
	}
	if e.TTL != 0 {
		f.DeadlineMS = (e.ClusterTime + e.ExpiresIn).Milliseconds()
	}
	if e.Session != "" {
		var err error
		if f.Session, err = strconv.ParseUint(e.Session, 10, 64); err != nil {
			return f, err
		}
	}
	return f, nil
}

// followEvents reads the events of a node, across its restarts, until the cluster is closed.
func (c *cluster) followEvents(n *node) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-c.stop; cancel() }()
	api, err := client.New(client.Config{Addresses: []string{n.url()}, GiveUpAfter: time.Second})
	if err != nil {
		c.fail("%v", err)
		return
	}
	defer api.Close(ctx)
	watcher := operator.New(api)
	for after := (replica.EventID{}); ctx.Err() == nil; {
		err := c.takeEvents(ctx, n, watcher, &after)
		if errors.Is(err, operator.ErrHistoryGone) { // a snapshot has replaced the log: continue with later events
			var s status
			if _, err := c.ask(n, http.MethodGet, "/v1/cluster", "", &s); err == nil {
				c.events.Jumped()
				after.Index = s.Applied
			}
		} else if err != nil && ctx.Err() == nil {
			c.note("the events of %s: %v", n.id, err)
		}
		rest(c.stop, 50*time.Millisecond) // the node may be away
	}
}

// takeEvents reads the events after an entry. It moves after to the last entry whose events it has read completely,
// which it knows when a later entry begins.
func (c *cluster) takeEvents(ctx context.Context, n *node, watcher *operator.Operator, after *replica.EventID) error {
	entry := replica.EventEntry{}
	for e, err := range watcher.Events(ctx, operator.Since(strconv.FormatUint(after.Index, 10))) {
		if err != nil {
			return err
		}
		f, err := effect(e)
		if err != nil {
			return err
		}
		if e.Index != entry.Index {
			if next := (replica.EventID{Index: entry.Index}); entry.Index != 0 {
				c.events.Take(n.id, replica.EventPage{Entries: []replica.EventEntry{entry}, Next: next}, *after)
				*after = next
			}
			entry = replica.EventEntry{Index: e.Index, NowMS: e.ClusterTime.Milliseconds()}
		}
		entry.Effects = append(entry.Effects, f)
	}
	return nil
}

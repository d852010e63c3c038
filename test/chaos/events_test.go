//go:build chaos && linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// event has the members of all events that GET /v1/events shows.
type event struct {
	Index     uint64            `json:"index"`
	NowMS     int64             `json:"cluster_time_ms"`
	Semaphore string            `json:"semaphore"`
	Epoch     uint64            `json:"epoch"`
	Session   string            `json:"session"`
	Place     uint64            `json:"place"`
	Token     uint64            `json:"token"`
	Count     int64             `json:"count"`
	Unowned   bool              `json:"unowned"`
	Partial   bool              `json:"partial"`
	Listed    bool              `json:"listed"`
	Mode      string            `json:"mode"`
	Permits   int64             `json:"permits"`
	Offset    int64             `json:"offset"`
	Level     *int32            `json:"level"`
	Metadata  map[string]string `json:"metadata"`
	TTLMS     int64             `json:"ttl_ms"`
	ExpiresMS int64             `json:"expires_in_ms"`
	OneShot   bool              `json:"one_shot"`
	Cause     string            `json:"cause"`
	Reason    string            `json:"reason"`
}

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

// effect is an event as the state machine made it. An event names a request for one
// semaphore as one for all of its semaphores, which makes no difference to its rules.
func (e event) effect(name string) (fsm.Effect, error) {
	kind, known := kinds[name]
	cause, named := causes[e.Cause]
	if !known || e.Cause != "" && !named {
		return fsm.Effect{}, fmt.Errorf("an event %q with cause %q", name, e.Cause)
	}
	f := fsm.Effect{Kind: kind, Cause: cause, Unowned: e.Unowned, Partial: e.Partial, Listed: e.Listed, OneShot: e.OneShot,
		Semaphore: e.Semaphore, Epoch: e.Epoch, Place: e.Place, Token: e.Token, Count: e.Count, Permits: e.Permits, Offset: e.Offset,
		Level: e.Level, TTLMS: e.TTLMS, Reason: e.Reason}
	switch e.Mode {
	case "all":
		f.Mode = fsm.All
	case "any":
		f.Mode = fsm.Any
	}
	if e.TTLMS != 0 {
		f.DeadlineMS = e.NowMS + e.ExpiresMS
	}
	if e.Session != "" {
		var err error
		if f.Session, err = strconv.ParseUint(e.Session, 10, 64); err != nil {
			return f, err
		}
	}
	return f, nil
}

// followEvents takes the events of a node, over all its lives, until the cluster is closed.
func (c *cluster) followEvents(n *node) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-c.stop; cancel() }()
	after, since := replica.EventID{}, "0"
	for ctx.Err() == nil {
		gone, err := c.readEvents(ctx, n, since, &after)
		switch {
		case gone: // a snapshot came into the place of the log: go on with what comes
			c.events.Jumped()
			since = ""
		case since == "" && after.Index == 0:
		default:
			since = strconv.FormatUint(after.Index, 10)
		}
		if err != nil && ctx.Err() == nil {
			c.note("the events of %s: %v", n.id, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // the node may be away
		}
	}
}

// readEvents reads one stream, from after the entry since or from now on, and moves after to
// the last entry that it has taken whole.
func (c *cluster) readEvents(ctx context.Context, n *node, since string, after *replica.EventID) (gone bool, err error) {
	path := n.url() + "/v1/events"
	if since != "" {
		path += "?since=" + since
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: 15 * time.Second}}).Do(request)
	if err != nil {
		return false, nil // it is away
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusGone:
		return true, nil
	default:
		return false, nil // it has no leader
	}
	if since == "" {
		index, err := strconv.ParseUint(response.Header.Get("X-Signalbox-Index"), 10, 64)
		if err != nil {
			return false, err
		}
		*after = replica.EventID{Index: index}
	}
	return false, c.takeEvents(n, response.Body, after)
}

// takeEvents decodes a stream into entries. An entry is whole once a later one has begun. The break
// of a stream is no error: its node was killed, say, and the caller asks for the rest.
func (c *cluster) takeEvents(n *node, stream io.Reader, after *replica.EventID) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	var entry replica.EventEntry
	name := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			var e event
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return err
			}
			f, err := e.effect(name)
			if err != nil {
				return err
			}
			if e.Index != entry.Index {
				c.takeEntry(n, entry, after)
				entry = replica.EventEntry{Index: e.Index, NowMS: e.NowMS}
			}
			entry.Effects = append(entry.Effects, f)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return err
	}
	return nil
}

func (c *cluster) takeEntry(n *node, entry replica.EventEntry, after *replica.EventID) {
	if entry.Index == 0 {
		return
	}
	next := replica.EventID{Index: entry.Index}
	c.events.Take(n.id, replica.EventPage{Entries: []replica.EventEntry{entry}, Next: next}, *after)
	*after = next
}

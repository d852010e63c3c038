package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/items"
)

// TestRealItems changes items and reads them, through every node.
func TestRealItems(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		i := items.New(c)
		_, err := i.Get(s.ctx, "a/b")
		s.is(err, items.ErrUnknownItem)
		made, err := i.Put(s.ctx, "a/b", []byte("text"), items.IfVersion(0), items.Flags(7))
		s.ok(err)
		_, err = i.Put(s.ctx, "a/b", nil, items.IfVersion(0))
		s.is(err, items.ErrDiffers)
		bytes := []byte{0xff, 0}
		put, err := i.Put(s.ctx, "a/c", bytes)
		s.ok(err)
		if !made.Created || !put.Created || put.Version <= made.Version {
			t.Errorf("made %+v, then %+v", made, put)
		}
		session, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		_, err = i.Acquire(s.ctx, session.ID(), "a/c", bytes)
		s.ok(err)
		var names []string
		for item, err := range i.List(s.ctx, "a/") {
			s.ok(err)
			names = append(names, fmt.Sprintf("%s %q %d %t", item.Name, item.Value, item.Flags, item.Session == session.ID()))
			if item.Index < item.Version {
				t.Errorf("%s has version %d in the state of index %d", item.Name, item.Version, item.Index)
			}
		}
		if want := []string{`a/b "text" 7 false`, `a/c "\xff\x00" 0 true`}; !slices.Equal(names, want) {
			t.Errorf("listed %q", names)
		}
		_, err = i.Release(s.ctx, "1", "a/c", nil)
		s.is(err, items.ErrDiffers)
		var refusal *client.Error
		if !errors.As(err, &refusal) || refusal.Rule != "not-holder" {
			t.Errorf("released by another session: %v", err)
		}
		s.is(i.Delete(s.ctx, "a/b", items.IfVersion(made.Version+100)), items.ErrDiffers)
		s.ok(i.Delete(s.ctx, "a/b", items.IfVersion(made.Version)))
		s.ok(i.Delete(s.ctx, "a/b"))
		s.ok(session.Close(s.ctx))
		free, err := i.Get(s.ctx, "a/c")
		s.ok(err)
		if free.Session != "" || string(free.Value) != string(bytes) {
			t.Errorf("after the end of its session: %+v", free)
		}
	})
}

// TestItemNames: names that would make another path are refused without a request.
func TestItemNames(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		i := items.New(b.c)
		_, get := i.Get(b.within(time.Second), "")
		_, put := i.Put(b.within(time.Second), "", nil)
		_, elect := i.Elect(b.within(time.Second), "", nil, client.SessionOptions{})
		for _, err := range []error{get, put, elect, i.Delete(b.within(time.Second), "")} {
			b.is(err, client.ErrInvalidRequest)
		}
		if sent := len(b.net.requests()); sent != 0 {
			b.Errorf("%d requests were sent", sent)
		}
	})
}

// TestRealItemWatch: a watch shows an item that is made, changed and deleted.
func TestRealItemWatch(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		i := items.New(c)
		steps := []struct {
			do   func() error
			want string
		}{
			{func() error { _, err := i.Put(s.ctx, "w", []byte("1")); return err }, `"" false`},
			{func() error { _, err := i.Put(s.ctx, "w", []byte("2")); return err }, `"1" true`},
			{func() error { return i.Delete(s.ctx, "w") }, `"2" true`},
			{func() error { _, err := i.Put(s.ctx, "w", []byte("3")); return err }, `"" false`},
			{nil, `"3" true`},
		}
		for item, err := range i.Watch(s.ctx, "w") {
			s.ok(err)
			if got := fmt.Sprintf("%q %t", item.Value, item.Version != 0); got != steps[0].want {
				t.Fatalf("%d steps left: %s, want %s", len(steps), got, steps[0].want)
			}
			if steps[0].do == nil {
				return
			}
			s.ok(steps[0].do())
			steps = steps[1:]
		}
	})
}

// TestRealElection: one candidate leads at a time, with a token larger than the one before, and
// another follows when it resigns, when its session ends, and when an operator deletes the item.
func TestRealElection(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		i := items.New(c)
		var leading, mostLeading atomic.Int32
		last := uint64(0)
		elected := make(chan *items.Leadership, 4)
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		for n := range 4 {
			go func() {
				led, err := i.Elect(ctx, "svc/leader", fmt.Appendf(nil, "c%d", n), client.SessionOptions{TTL: time.Minute})
				if err == nil {
					if now := leading.Add(1); now > mostLeading.Load() {
						mostLeading.Store(now)
					}
					elected <- led
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}()
		}
		for n, end := range []func(led *items.Leadership) error{
			func(led *items.Leadership) error { return led.Resign(s.ctx) },
			func(*items.Leadership) error { return i.Delete(s.ctx, "svc/leader") },
			func(led *items.Leadership) error { return led.Resign(s.ctx) },
		} {
			led := <-elected
			if led.Token <= last || led.Err() != nil {
				t.Errorf("%d: token %d after %d, %v", n, led.Token, last, led.Err())
			}
			last = led.Token
			shown, err := i.Get(s.ctx, "svc/leader")
			s.ok(err)
			if shown.Session != led.Session || !strings.HasPrefix(string(shown.Value), "c") {
				t.Errorf("%d: %+v is shown, and %s leads", n, shown, led.Session)
			}
			s.ok(led.Set(s.ctx, []byte("c-set")))
			leading.Add(-1)
			s.ok(end(led))
			<-led.Lost()
			if resigned := errors.Is(led.Err(), client.ErrReleased); resigned == (n == 1) || !resigned && !errors.Is(led.Err(), client.ErrLost) {
				t.Errorf("%d: ended with %v", n, led.Err())
			}
			if n == 1 {
				s.is(led.Set(s.ctx, nil), client.ErrLost)
				s.is(led.Resign(s.ctx), client.ErrLost)
			}
		}
		<-elected
		if mostLeading.Load() != 1 {
			t.Errorf("%d led at a time", mostLeading.Load())
		}
	})
}

// TestRealDeposition: who deletes the item ends the leadership, also if the watch of the leader was deaf for so
// long that the item is there again: its next Set tells, and so does the watch when it hears again.
func TestRealDeposition(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		i := items.New(c)
		for name, learns := range map[string]func(*items.Leadership){
			"set": func(led *items.Leadership) { s.is(led.Set(s.ctx, nil), client.ErrLost) },
			"watch": func(led *items.Leadership) {
				_, err := i.Acquire(s.ctx, led.Session, led.Name, nil)
				s.ok(err)
				s.net.follow(nil)
				<-led.Lost()
			},
		} {
			s.net.follow(on("GET", "", fault{lose: true}))
			led, err := i.Elect(s.ctx, name, nil, client.SessionOptions{TTL: time.Minute})
			s.ok(err)
			s.ok(i.Delete(s.ctx, name))
			learns(led)
			s.is(led.Resign(s.ctx), client.ErrLost)
		}
	})
}

// hiding is the way to a cluster that does not show the ids of sessions.
type hiding struct{ *network }

var shownSession = regexp.MustCompile(`"session":"[0-9]+"`)

func (h hiding) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.network.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	body = shownSession.ReplaceAll(body, []byte(`"session":""`))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, err
}

// TestRealElectionOfAHiddenSession: a leader whose session is not shown leads on, until the item is deleted.
func TestRealElectionOfAHiddenSession(t *testing.T) {
	really(t, 1, func(s *service, _ *client.Client) {
		c, err := client.New(client.Config{Addresses: []string{"http://n1"}, HTTPClient: &http.Client{Transport: hiding{s.net}}})
		s.ok(err)
		i := items.New(c)
		led, err := i.Elect(s.ctx, "svc/leader", nil, client.SessionOptions{TTL: time.Minute})
		s.ok(err)
		for _, value := range []string{"1", "2"} {
			s.ok(led.Set(s.ctx, []byte(value)))
			time.Sleep(2 * time.Minute) // virtual: the watch has seen it
			s.ok(led.Err())
		}
		s.ok(i.Delete(s.ctx, "svc/leader"))
		<-led.Lost()
		s.is(led.Err(), client.ErrLost)
		s.ok(c.Close(s.ctx))
	})
}

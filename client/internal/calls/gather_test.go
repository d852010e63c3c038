package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// flight is how long a node takes for a request, less than maxGatherDelay.
const flight = 4 * time.Millisecond

// sharing is a node that replies after some time. Its reply to a shared request has one result for each member, made by
// replyTo; its reply to any other request is 200 and {}.
func sharing(after time.Duration, replyTo func(member map[string]any) string) script {
	return func(r *http.Request, _ int) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if r.URL.Path != "/v1/batch" {
			return replying(200, " {}")
		}
		var batch struct{ Operations []map[string]any }
		if err := json.Unmarshal(body, &batch); err != nil {
			return nil, err
		}
		var results []string
		for _, member := range batch.Operations {
			results = append(results, replyTo(member))
		}
		return replying(200, ` {"results":[`+strings.Join(results, ",")+`]}`, "X-Signalbox-Index", "7")
	}
}

// ended is how a call ended.
type ended struct {
	Reply
	err error
}

// begin makes a call in a new goroutine, and returns once it waits for its reply.
func (b *rig) begin(ctx context.Context, k Call) <-chan ended {
	k.Method, k.Path = "POST", []string{"v1", "thing"}
	out := make(chan ended, 1)
	go func() {
		r, err := b.Do(ctx, k)
		out <- ended{r, err}
	}()
	synctest.Wait()
	return out
}

// paths lists the paths of the requests so far.
func (b *rig) paths() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var paths []string
	for _, r := range b.sent {
		paths = append(paths, strings.TrimPrefix(r.URL.Path, "/v1/"))
	}
	return strings.Join(paths, " ")
}

func numbered(n int) Call {
	return Call{Key: fmt.Sprint("key-", n), Operation: Operation{Name: "up", Semaphore: fmt.Sprint(n)}, Body: map[string]any{"count": n}}
}

// A lone call is sent at once. Calls that come while it is under way share the next request, which is sent after its
// reply. Each call gets its own result.
func TestGatherEachItsOwnResult(t *testing.T) {
	echo := func(m map[string]any) string {
		text, _ := json.Marshal(m)
		switch m["semaphore"] {
		case "3":
			return `{"status":404,"body":{"code":"unknown-semaphore"}}`
		case "4":
			return `{"status":200,"body":` + string(text) + `,"replayed":true}`
		case "5":
			return `{"status":204}`
		}
		return `{"status":201,"body":` + string(text) + `}`
	}
	virtually(t, 1, sharing(flight, echo), func(b *rig) {
		ctx, began := b.Context(), time.Now()
		var calls []<-chan ended
		for n := range 6 {
			k := numbered(n)
			if n == 2 {
				k.Query = url.Values{"epoch": {"8"}}
			}
			calls = append(calls, b.begin(ctx, k))
		}
		var got []ended
		for _, c := range calls {
			got = append(got, <-c)
		}
		b.took(began, 2*flight, 2*flight)
		if b.paths() != "thing batch" {
			t.Errorf("requests %q", b.paths())
		}
		for n, want := range []string{"{}", `{"count":1,"key":"key-1","op":"up","semaphore":"1"}`, `{"count":2,"epoch":8,"key":"key-2","op":"up","semaphore":"2"}`,
			"", `{"count":4,"key":"key-4","op":"up","semaphore":"4"}`, ""} {
			if text := strings.TrimSpace(string(got[n].Body)); text != want || (got[n].err != nil) != (n == 3) || got[n].Replayed != (n == 4) {
				t.Errorf("call %d: %q, %v, %t", n, text, got[n].err, got[n].Replayed)
			}
		}
		if got[1].Status != 201 || got[5].Status != 204 || got[1].Index != 7 || got[1].Sent.Sub(Moment(began.Sub(epoch))) != flight || !errors.Is(got[3].err, Code("unknown-semaphore")) {
			t.Errorf("%+v\n%+v\n%v", got[1], got[5], got[3].err)
		}
	})
}

// Callers that call again as soon as they have a reply share the next request with the calls that wait already.
// Otherwise eight callers would form two groups whose requests take turns.
func TestGatherCallsAgain(t *testing.T) {
	ok := func(map[string]any) string { return `{"status":200,"body":{}}` }
	virtually(t, 1, sharing(flight, ok), func(b *rig) {
		const callers, repeats = 8, 100
		began := time.Now()
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				for range repeats {
					if _, err := b.Do(b.Context(), Call{Method: "POST", Path: []string{"v1", "thing"}, Key: "key", Operation: numbered(n).Operation}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if flights := time.Since(began) / flight; flights > repeats*9/5 { // two groups make two a repeat
			t.Errorf("%d calls of each caller took %d requests one after the other", repeats, flights)
		}
	})
}

// The next request is sent when the request under way has returned, but at most 10 ms after the first call that waits
// for it. So a node that is far away, or silent, delays no other call for long.
func TestGatherNoLonger(t *testing.T) {
	ok := func(map[string]any) string { return `{"status":200,"body":{}}` }
	for takes, want := range map[time.Duration]time.Duration{300 * time.Microsecond: 600 * time.Microsecond, time.Second: 1010 * time.Millisecond} {
		virtually(t, 1, sharing(takes, ok), func(b *rig) {
			began := time.Now()
			first, second := b.begin(b.Context(), numbered(0)), b.begin(b.Context(), numbered(1))
			<-first
			<-second
			b.took(began, want, want)
		})
	}
}

// A caller gives up. Before the request is sent, its call leaves no trace; while the request is under way, the outcome
// of its call is unknown. The other callers get their results. When the last caller gives up, the request is aborted.
func TestGatherOneGivesUp(t *testing.T) {
	ok := func(m map[string]any) string {
		return `{"status":200,"body":{"of":"` + fmt.Sprint(m["semaphore"]) + `"}}`
	}
	virtually(t, 1, sharing(flight, ok), func(b *rig) {
		first := b.begin(b.Context(), numbered(0))
		early, leave := context.WithCancel(b.Context())
		gone := b.begin(early, numbered(1))
		stays := b.begin(b.Context(), numbered(2))
		late, hangUp := context.WithTimeout(b.Context(), 5*time.Millisecond)
		defer hangUp()
		unsure := b.begin(late, numbered(3))
		leave()
		if e := <-gone; !errors.Is(e.err, context.Canceled) || errors.Is(e.err, ErrOutcomeUnknown) {
			t.Errorf("gave up before: %v", e.err)
		}
		if e := <-unsure; !errors.Is(e.err, context.DeadlineExceeded) || !errors.Is(e.err, ErrOutcomeUnknown) {
			t.Errorf("gave up meanwhile: %v", e.err)
		}
		if e := <-stays; e.err != nil || string(e.Body) != `{"of":"2"}` {
			t.Errorf("%s, %v", e.Body, e.err)
		}
		if e := <-first; e.err != nil {
			t.Error(e.err)
		}
		if b.paths() != "thing batch" {
			t.Errorf("requests %q", b.paths())
		}
	})
	virtually(t, 1, silent, func(b *rig) {
		ctx, hangUp := context.WithCancel(b.Context())
		calls := []<-chan ended{b.begin(ctx, numbered(0)), b.begin(ctx, numbered(1)), b.begin(ctx, numbered(2))}
		time.Sleep(time.Minute / 10) // virtual
		hangUp()
		left := time.Now()
		for _, c := range calls {
			if e := <-c; !errors.Is(e.err, context.Canceled) {
				t.Error(e.err)
			}
		}
		b.took(left, 0, 0)
	})
	virtually(t, 1, sharing(flight, ok), func(b *rig) { // all leave before it is sent
		first := b.begin(b.Context(), numbered(0))
		ctx, leave := context.WithCancel(b.Context())
		gone := b.begin(ctx, numbered(1))
		leave()
		<-gone
		<-first
		if e := <-b.begin(b.Context(), numbered(2)); e.err != nil || b.paths() != "thing thing" {
			t.Errorf("%v, requests %q", e.err, b.paths())
		}
	})
}

// A call whose deadline passes before its request is sent does not count against the node: later calls stay there.
func TestGatherDeadlineBeforeTheRequest(t *testing.T) {
	virtually(t, 2, sharing(flight, func(map[string]any) string { return `{"status":200,"body":{}}` }), func(b *rig) {
		first := b.begin(b.Context(), numbered(0))
		soon, cancel := context.WithTimeout(b.Context(), flight/2)
		defer cancel()
		if e := <-b.begin(soon, numbered(1)); !errors.Is(e.err, context.DeadlineExceeded) || errors.Is(e.err, ErrUnreachable) {
			t.Errorf("a deadline before the request is sent: %v", e.err)
		}
		<-first
		if e := <-b.begin(b.Context(), numbered(2)); e.err != nil || b.asked() != "n1 n1" {
			t.Errorf("%v, nodes %q", e.err, b.asked())
		}
	})
}

// A member that failed is repeated at another node with its key. So are all members of a request that was lost, or whose
// reply can't be read.
func TestGatherRepeats(t *testing.T) {
	busy := func(m map[string]any) string {
		if m["semaphore"] == "1" {
			return `{"status":503,"body":{"code":"not-applied"}}`
		}
		return `{"status":200,"body":{}}`
	}
	for name, c := range map[string]struct {
		node1   script
		repeats string // of call 1 and call 2
	}{
		"503 of a member": {sharing(flight, busy), "n2 n1"},
		"lost": {func(r *http.Request, nth int) (*http.Response, error) {
			if r.URL.Path == "/v1/batch" {
				return nil, io.ErrUnexpectedEOF
			}
			return sharing(flight, busy)(r, nth)
		}, "n2 n2"},
		"a result too few": {func(r *http.Request, nth int) (*http.Response, error) {
			if r.URL.Path == "/v1/batch" {
				return replying(200, ` {"results":[{"status":200,"body":{}}]}`)
			}
			return sharing(flight, busy)(r, nth)
		}, "n2 n2"},
		"503": {func(r *http.Request, nth int) (*http.Response, error) {
			if r.URL.Path == "/v1/batch" {
				return replying(503, `{"code":"no-leader"}`)
			}
			return sharing(flight, busy)(r, nth)
		}, "n2 n2"},
	} {
		t.Run(name, func(t *testing.T) {
			ok := func(map[string]any) string { return `{"status":200,"body":{}}` }
			virtually(t, 2, func(r *http.Request, nth int) (*http.Response, error) {
				if r.URL.Host == "n1" {
					return c.node1(r, nth)
				}
				return sharing(flight, ok)(r, nth)
			}, func(b *rig) {
				first, second, third := b.begin(b.Context(), numbered(0)), b.begin(b.Context(), numbered(1)), b.begin(b.Context(), numbered(2))
				<-first
				r1, r2 := <-second, <-third
				if r1.err != nil || r2.err != nil {
					t.Fatal(r1.err, r2.err)
				}
				if got := r1.Node.Host() + " " + r2.Node.Host(); got != c.repeats {
					t.Errorf("replies from %s, want %s", got, c.repeats)
				}
			})
		})
	}
}

// If a node refuses the shared request as a whole, its members are sent separately.
func TestGatherFallsApart(t *testing.T) {
	for _, refusal := range []struct {
		status int
		body   string
	}{{403, "<html>"}, {404, "<html>"}, {404, `{"code":"unknown-route"}`}, {405, ""}, {413, `{"code":"too-large"}`}, {400, `{"code":"invalid-request"}`}} {
		virtually(t, 1, func(r *http.Request, nth int) (*http.Response, error) {
			if r.URL.Path == "/v1/batch" {
				return replying(refusal.status, refusal.body)
			}
			return sharing(flight, nil)(r, nth)
		}, func(b *rig) {
			for _, c := range []<-chan ended{b.begin(b.Context(), numbered(0)), b.begin(b.Context(), numbered(1)), b.begin(b.Context(), numbered(2))} {
				if e := <-c; e.err != nil || e.Status != 200 {
					t.Errorf("%d: %v", refusal.status, e.err)
				}
			}
			first, second := b.begin(b.Context(), numbered(3)), b.begin(b.Context(), numbered(4)) // it is not asked so again
			<-first
			<-second
			if b.paths() != "thing batch thing thing thing thing" {
				t.Errorf("%d: requests %q", refusal.status, b.paths())
			}
		})
	}
}

// Some calls are sent separately: calls that wait, that have no key, or that the nodes could read differently in JSON. A
// shared request has a bounded number of members.
func TestGatherWhichCalls(t *testing.T) {
	ok := func(map[string]any) string { return `{"status":200,"body":{}}` }
	for name, change := range map[string]func(k *Call){
		"no operation": func(k *Call) { k.Operation = Operation{} },
		"a wait":       func(k *Call) { k.Until = time.Now().Add(time.Minute) },
		"listens":      func(k *Call) { k.Listen = true },
		"no key":       func(k *Call) { k.Key = "" },
		"a header":     func(k *Call) { k.Header = http.Header{"If-None-Match": {"*"}} },
		"no UTF-8":     func(k *Call) { k.Operation.Semaphore = "\xff" },
	} {
		virtually(t, 1, sharing(flight, ok), func(b *rig) {
			first := b.begin(b.Context(), numbered(0))
			k := numbered(1)
			change(&k)
			second := b.begin(b.Context(), k)
			for _, c := range []<-chan ended{first, second} {
				if e := <-c; e.err != nil {
					t.Errorf("%s: %v", name, e.err)
				}
			}
			if b.paths() != "thing thing" {
				t.Errorf("%s: requests %q", name, b.paths())
			}
		})
	}
	virtually(t, 1, sharing(flight, ok), func(b *rig) {
		end := Call{Operation: Operation{Name: "end", Session: "5", Late: true}}
		calls := []<-chan ended{b.begin(b.Context(), numbered(0))}
		for range maxMembers + 1 {
			calls = append(calls, b.begin(b.Context(), end))
		}
		for _, c := range calls {
			if e := <-c; e.err != nil {
				t.Error(e.err)
			}
		}
		if b.paths() != "thing batch batch" {
			t.Errorf("requests %q", b.paths())
		}
	})
}

// If a node is overloaded, a request that gives permits back is sent separately, since the node prefers such requests.
// After a while requests are shared again. The node skips the members that follow the first refused member of a shared
// request.
func TestGatherGivesBackFirst(t *testing.T) {
	refused := 0
	overloaded := func(map[string]any) string {
		if refused++; refused%2 == 0 {
			return `{"status":503,"body":{"code":"not-applied"}}`
		}
		return `{"status":503,"body":{"code":"overloaded"}}`
	}
	back := func(n int) Call {
		k := numbered(n)
		k.Operation.Name = "release"
		return k
	}
	virtually(t, 1, sharing(flight, overloaded), func(b *rig) {
		for _, want := range []string{"thing batch thing thing", "thing batch thing thing thing thing thing"} {
			began := time.Now()
			first, second, third := b.begin(b.Context(), back(0)), b.begin(b.Context(), back(1)), b.begin(b.Context(), back(2))
			for _, c := range []<-chan ended{first, second, third} {
				if e := <-c; e.err != nil {
					b.Error(e.err)
				}
			}
			if b.paths() != want {
				b.Errorf("requests %q, wanted %q", b.paths(), want)
			}
			b.took(began, 0, 30*time.Millisecond)
		}
		time.Sleep(overloadPause) // virtual
		first, second := b.begin(b.Context(), back(0)), b.begin(b.Context(), back(1))
		<-first
		<-second
		if !strings.HasSuffix(b.paths(), " thing batch thing") {
			b.Errorf("a second later: requests %q", b.paths())
		}
	})
}

// A member of a shared request has no Retry-After: the refusal says when to ask again.
func TestGatherRefusalsSayWhenToAskAgain(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"code":"unavailable"}`:                        time.Second,
		`{"code":"unavailable","available_in_ms":4001}`: 5 * time.Second,
		`{"code":"lease-exists"}`:                       0,
	} {
		refused := func(map[string]any) string { return `{"status":409,"body":` + body + `}` }
		virtually(t, 1, sharing(flight, refused), func(b *rig) {
			first, second := b.begin(b.Context(), numbered(0)), b.begin(b.Context(), numbered(1))
			<-first
			var refusal *Refusal
			if e := <-second; !errors.As(e.err, &refusal) || refusal.RetryAfter != want {
				b.Errorf("%s: %v", body, e.err)
			}
		})
	}
}

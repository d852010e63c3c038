package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is the result of a route: a body, or a refusal.
type answer struct {
	status   int
	body     map[string]any
	refusal  *refusal
	replayed bool
	index    uint64
}

// ask is one HTTP request as the fake reads it.
type ask struct {
	ctx     context.Context
	method  string
	path    []string // decoded segments after /v1
	query   url.Values
	key     string
	onlyNew bool
	body    struct {
		Name       string            `json:"name"`
		Permits    *int64            `json:"permits"`
		Level      *int32            `json:"level"`
		Metadata   map[string]string `json:"metadata"`
		Count      *int64            `json:"count"`
		Value      int64             `json:"value"`
		Partial    bool              `json:"partial"`
		TTL        int64             `json:"ttl"`
		Mode       string            `json:"mode"`
		Semaphores []want            `json:"semaphores"`
	}
	raw string
}

func refuse(status int, code string, members ...any) answer {
	r := &refusal{status, code, map[string]any{}}
	for i := 0; i < len(members); i += 2 {
		r.members[members[i].(string)] = members[i+1]
	}
	return answer{refusal: r}
}

func (a *ask) count() int64 {
	if a.body.Count == nil {
		return 1
	}
	return *a.body.Count
}

func (a *ask) waitMS() int64 {
	ms, _ := strconv.ParseInt(a.query.Get("wait"), 10, 64)
	return ms
}

// ServeHTTP makes the fake usable over real connections too.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := ask{ctx: r.Context(), method: r.Method, query: r.URL.Query(), key: r.Header.Get("Idempotency-Key"),
		onlyNew: r.Header.Get("If-None-Match") == "*"}
	for segment := range strings.SplitSeq(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/"), "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			panic(err)
		}
		a.path = append(a.path, plain)
	}
	raw, _ := io.ReadAll(r.Body)
	if a.raw = string(raw); len(raw) > 0 {
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&a.body); err != nil {
			f.render(w, refuse(400, "invalid-request", "detail", err.Error()))
			return
		}
	}
	f.render(w, f.route(&a))
}

func (f *fake) render(w http.ResponseWriter, a answer) {
	w.Header().Set("X-Signalbox-Index", strconv.FormatUint(a.index, 10))
	if a.replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if a.replayed && a.refusal == nil && over(a.body) {
		a.refusal = &refusal{status: 410, code: "over"}
	}
	if a.refusal != nil {
		body := map[string]any{"status": a.refusal.status, "code": a.refusal.code, "title": a.refusal.code, "detail": "said the fake"}
		maps.Copy(body, a.refusal.members)
		a.status, a.body = a.refusal.status, body
		w.Header().Set("Content-Type", "application/problem+json")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.status)
	if a.body != nil {
		_ = json.NewEncoder(w).Encode(a.body)
	}
}

// over reports whether a reply is of a session or lease that has ended.
func over(body map[string]any) bool {
	leases, _ := body["leases"].([]map[string]any)
	for _, lease := range append(leases, body) {
		if left, given := lease["expires_in_ms"]; given && fmt.Sprint(left) == "0" {
			return true
		}
	}
	return false
}

// route finds what a request asks for. A name of a route is its method and its path
// without names and ids.
func (f *fake) route(a *ask) answer {
	shape := []string{a.method}
	for i, segment := range a.path {
		if i%2 == 1 && (i != 1 || len(a.path) > 1) && segment != "" && (i == 1 || i == 3) {
			segment = "*"
		}
		shape = append(shape, segment)
	}
	switch strings.Join(shape, " ") {
	case "POST semaphores", "PUT semaphores *":
		return f.keyed(a, f.putSemaphore)
	case "DELETE semaphores *":
		return f.keyed(a, f.deleteSemaphore)
	case "GET semaphores":
		return f.list(a)
	case "GET semaphores *":
		return f.blockingGet(a)
	case "POST semaphores * up", "PUT semaphores * value":
		return f.keyed(a, f.move)
	case "POST semaphores * down", "POST semaphores * leases":
		return f.waiting(a)
	case "POST sessions":
		return f.keyed(a, func(a *ask) answer {
			s := f.open(a.body.TTL, false)
			s.metadata = a.body.Metadata
			return answer{status: 201, body: f.life(s)}
		})
	case "PUT sessions *", "GET sessions *", "DELETE sessions *":
		return f.session(a)
	case "PUT sessions * leases *", "POST sessions * acquire":
		return f.waiting(a)
	case "GET sessions * leases *":
		return f.getLease(a)
	case "DELETE sessions * leases *":
		return f.keyed(a, f.release)
	}
	return refuse(404, "unknown-route")
}

// keyed does what never waits, once for each key.
func (f *fake) keyed(a *ask, change func(*ask) answer) (out answer) {
	f.do(func() {
		k, refused := f.lookUp(a)
		switch {
		case refused != nil:
			out = *refused
		case k != nil && k.outcome != nil:
			out = *k.outcome
			out.replayed = true
			if id, _ := out.body["session"].(string); id != "" {
				out.body = maps.Clone(out.body)
				out.body["expires_in_ms"] = f.left(id)
			}
		default:
			out = change(a)
			if k != nil {
				k.outcome = &answer{status: out.status, body: out.body, refusal: out.refusal}
			}
		}
		out.index = f.index
	})
	return out
}

// lookUp finds or makes the record of a request's key; nil without one.
func (f *fake) lookUp(a *ask) (*keyed, *answer) {
	if a.key == "" {
		return nil, nil
	}
	other := url.Values{} // wait is no part of the fingerprint
	for name, values := range a.query {
		if name != "wait" {
			other[name] = values
		}
	}
	fingerprint := fmt.Sprint(a.method, a.path, other.Encode(), a.raw)
	k := f.keys[a.key]
	switch {
	case k == nil && len(f.keys) >= f.maxKeys:
		out := refuse(429, "limit-reached", "rule", "keys")
		return nil, &out
	case k == nil:
		k = &keyed{fingerprint: fingerprint}
		f.keys[a.key] = k
	case k.fingerprint != fingerprint:
		out := refuse(422, "key-reused")
		return nil, &out
	}
	return k, nil
}

func (f *fake) left(session string) int64 {
	if s := f.sessions[session]; s != nil {
		return max(0, s.deadline-f.nowMS())
	}
	return 0
}

func (f *fake) life(s *fakeSession) map[string]any {
	return map[string]any{"session": s.id, "ttl_ms": s.ttlMS, "expires_in_ms": f.left(s.id)}
}

func (f *fake) putSemaphore(a *ask) answer {
	name, status := a.body.Name, 200
	if a.method == "PUT" {
		name = a.path[1]
	}
	sem := f.sems[name]
	switch {
	case sem != nil && a.onlyNew, a.wrongEpoch(sem):
		return refuse(412, "precondition-failed")
	case sem == nil && a.body.Permits == nil:
		return refuse(400, "invalid-request", "field", "permits")
	case sem == nil:
		sem, status = f.newSemaphore(name, *a.body.Permits), 201
		f.sems[name] = sem
		sem.level, sem.metadata = a.body.Level, a.body.Metadata
	case a.method == "PUT":
		sem.modified = f.index
		if a.body.Permits != nil {
			sem.permits = *a.body.Permits
		}
		if strings.Contains(a.raw, `"level"`) {
			sem.level = a.body.Level
		}
		if strings.Contains(a.raw, `"metadata"`) {
			sem.metadata = a.body.Metadata
		}
	}
	return answer{status: status, body: f.show(sem)}
}

func (a *ask) wrongEpoch(sem *fakeSemaphore) bool {
	text := a.query.Get("epoch")
	return sem != nil && text != "" && text != fmt.Sprint(sem.epoch)
}

func (f *fake) show(sem *fakeSemaphore) map[string]any {
	holders, waiters := []any{}, []any{}
	for _, id := range slices.Sorted(maps.Keys(f.sessions)) {
		if l := f.sessions[id].leases[sem.name]; l != nil {
			holders = append(holders, map[string]any{"session": id, "count": l.count, "token": l.token, "metadata": f.sessions[id].metadata})
		}
	}
	for _, r := range f.queue {
		for _, w := range r.wants {
			if w.Name == sem.name && r.session != nil {
				waiters = append(waiters, map[string]any{"session": r.session.id, "count": w.Count, "position": f.position(r)})
			}
		}
	}
	return map[string]any{"name": sem.name, "permits": sem.permits, "offset": sem.offset, "held": sem.held,
		"available": sem.permits + sem.offset - sem.held, "level": sem.level, "metadata": sem.metadata, "epoch": sem.epoch,
		"modified_index": sem.modified, "holders": holders, "waiters": waiters, "holder_count": len(holders), "waiter_count": len(waiters)}
}

func (f *fake) deleteSemaphore(a *ask) answer {
	sem := f.sems[a.path[1]]
	if sem == nil {
		return refuse(404, "unknown-semaphore")
	}
	if a.wrongEpoch(sem) {
		return refuse(412, "precondition-failed", "epoch", sem.epoch)
	}
	f.remove(sem.name)
	return answer{status: 204}
}

func (f *fake) move(a *ask) answer {
	sem := f.sems[a.path[1]]
	if sem == nil {
		return refuse(404, "unknown-semaphore", "semaphore", a.path[1])
	}
	if a.path[2] == "up" {
		sem.offset += a.count()
	} else {
		sem.offset = a.body.Value + sem.held - sem.permits
	}
	sem.modified = f.index
	f.serve()
	return answer{status: 200, body: map[string]any{"value": sem.permits + sem.offset - sem.held}}
}

// list returns two semaphores a page.
func (f *fake) list(a *ask) (out answer) {
	f.do(func() {
		page, next := []any{}, any(nil)
		for _, name := range slices.Sorted(maps.Keys(f.sems)) {
			if strings.HasPrefix(name, a.query.Get("prefix")) && name > a.query.Get("cursor") {
				if len(page) == 2 {
					next = page[1].(map[string]any)["name"]
					break
				}
				page = append(page, f.show(f.sems[name]))
			}
		}
		out = answer{status: 200, body: map[string]any{"semaphores": page, "next": next}}
	})
	return out
}

// until blocks until ready returns true, the wait is over or ctx ends. ready is
// called with the lock held; waiting loops meet every change.
func (f *fake) until(ctx context.Context, wait time.Duration, ready func() bool) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		f.mu.Lock()
		done, changed := ready(), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *fake) blockingGet(a *ask) (out answer) {
	index, _ := strconv.ParseUint(a.query.Get("index"), 10, 64)
	if a.query.Has("index") {
		f.until(a.ctx, time.Duration(a.waitMS())*time.Millisecond, func() bool {
			sem := f.sems[a.path[1]]
			return sem == nil || sem.modified > index || index > f.index
		})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sem := f.sems[a.path[1]]
	switch {
	case sem == nil:
		return refuse(404, "unknown-semaphore", "semaphore", a.path[1])
	case a.wrongEpoch(sem):
		return refuse(412, "precondition-failed", "epoch", sem.epoch)
	}
	return answer{status: 200, body: f.show(sem), index: f.index}
}

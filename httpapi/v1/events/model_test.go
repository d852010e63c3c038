package events_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/signalbox/signalbox/test/apitest"
)

// eventsModel is the state as a client knows it that only reads events. Its code is slow and simple.
type eventsModel struct {
	semaphores map[string]*modelSemaphore
	sessions   map[string]*modelSession
	ended      map[string]modelEnd
	leases     []*modelLease   // by token
	requests   []*modelRequest // by place
	entries    []*modelEntry   // of wait lists, in the order added
}

type modelEntry struct {
	session, semaphore string
	epoch, granted     int64
	deleted            bool
}

type modelSemaphore struct {
	epoch, settings, modified, permits, offset int64
	level, metadata                            any
}

type modelSession struct {
	ttl, deadline int64
	oneShot       bool
	metadata      any
}

type modelEnd struct{ cause, reason string }

type modelLease struct {
	session, semaphore      string
	token, count, grantedAt int64
	revoked                 bool
	reason                  string
}

type modelRequest struct {
	session, mode string
	place, since  int64
	unowned       bool
	listed        *modelEntry
	lines         []string
	counts        map[string]int64
}

func newEventsModel() *eventsModel {
	return &eventsModel{semaphores: map[string]*modelSemaphore{}, sessions: map[string]*modelSession{}, ended: map[string]modelEnd{}}
}

// apply applies an event. Events must come in the order of their ids.
func (m *eventsModel) apply(e toldEvent) {
	name, session, now := e.text("semaphore"), e.text("session"), e.number("cluster_time_ms")
	s := m.semaphores[name]
	if s != nil && e.name != "list-left" && (e.name != "changed" || s.permits != e.number("permits") || s.offset != e.number("offset")) {
		s.modified = e.number("index")
	}
	switch e.name {
	case "created", "changed":
		if s == nil {
			s = &modelSemaphore{modified: e.number("index")}
			m.semaphores[name] = s
		}
		if s.permits != e.number("permits") || !reflect.DeepEqual(s.level, e.body["level"]) || !reflect.DeepEqual(s.metadata, e.body["metadata"]) || s.settings == 0 {
			s.settings++
		}
		s.epoch, s.permits, s.offset = e.number("epoch"), e.number("permits"), e.number("offset")
		s.level, s.metadata = e.body["level"], e.body["metadata"]
	case "deleted":
		delete(m.semaphores, name)
	case "granted":
		m.granted(e, name, session, now)
	case "released", "expired", "revoked":
		m.released(e, session)
	case "waiting":
		m.waiting(e, name, session, now)
	case "withdrawn":
		m.leave(e.number("place"), name)
	case "list-ready":
		entry := m.entry(e, name, session)
		entry.granted, entry.deleted = entry.granted+e.number("count"), e.body["deleted"] == true
		if entry.deleted {
			entry.granted = 0
		}
	case "list-left":
		gone := m.entry(e, name, session)
		m.entries = slices.DeleteFunc(m.entries, func(other *modelEntry) bool { return other == gone })
	case "session-opened":
		delete(m.ended, session)
		m.sessions[session] = &modelSession{ttl: e.number("ttl_ms"), deadline: now + e.number("expires_in_ms"),
			oneShot: e.body["one_shot"] == true, metadata: e.body["metadata"]}
	case "session-renewed":
		m.sessions[session].ttl, m.sessions[session].deadline = e.number("ttl_ms"), now+e.number("expires_in_ms")
	case "session-ended":
		delete(m.sessions, session)
		m.ended[session] = modelEnd{e.text("cause"), e.text("reason")}
	}
}

// entry returns the entry of a session's wait list that an event is about. If there is no such entry, it makes one.
func (m *eventsModel) entry(e toldEvent, name, session string) *modelEntry {
	for _, entry := range m.entries {
		if entry.session == session && entry.semaphore == name && entry.epoch == e.number("epoch") {
			return entry
		}
	}
	entry := &modelEntry{session: session, semaphore: name, epoch: e.number("epoch")}
	m.entries = append(m.entries, entry)
	return entry
}

func (m *eventsModel) granted(e toldEvent, name, session string, now int64) {
	if e.number("place") != 0 {
		m.leave(e.number("place"), "")
	}
	if e.body["unowned"] != true {
		m.leases = append(m.leases, &modelLease{session: session, semaphore: name, token: e.number("token"),
			count: e.number("count"), grantedAt: now})
	}
}

func (m *eventsModel) released(e toldEvent, session string) {
	i := slices.IndexFunc(m.leases, func(l *modelLease) bool { return l.token == e.number("token") })
	l := m.leases[i]
	switch {
	case e.text("cause") == "resized":
		l.count -= e.number("count")
	case e.name == "revoked" && !l.revoked && !m.sessions[session].oneShot:
		l.revoked, l.reason = true, e.text("reason") // gone with its session, should that end now
	default:
		m.leases = slices.Delete(m.leases, i, i+1)
	}
}

func (m *eventsModel) waiting(e toldEvent, name, session string, now int64) {
	for _, r := range m.requests {
		if r.place == e.number("place") {
			if r.counts[name] == 0 {
				r.lines = append(r.lines, name)
			}
			r.counts[name] = e.number("count")
			return
		}
	}
	r := &modelRequest{session: session, mode: e.text("mode"), place: e.number("place"), since: now,
		unowned: e.body["unowned"] == true, lines: []string{name}, counts: map[string]int64{name: e.number("count")}}
	if e.body["listed"] == true {
		r.listed = m.entry(e, name, session)
	}
	m.requests = append(m.requests, r)
}

// leave removes a request from one line, or from all lines.
func (m *eventsModel) leave(place int64, line string) {
	m.requests = slices.DeleteFunc(m.requests, func(r *modelRequest) bool {
		if r.place != place {
			return false
		}
		r.lines = slices.DeleteFunc(r.lines, func(l string) bool { return l == line || line == "" })
		return len(r.lines) == 0
	})
}

// living removes the leases and requests of sessions that have ended.
func (m *eventsModel) living() {
	m.leases = slices.DeleteFunc(m.leases, func(l *modelLease) bool {
		return m.sessions[l.session] == nil || m.semaphores[l.semaphore] == nil
	})
}

// semaphore returns what GET shows at a moment, except the reasons why waiters wait.
func (m *eventsModel) semaphore(name string, now int64) any {
	s := m.semaphores[name]
	if s == nil {
		return "unknown-semaphore"
	}
	held, holders, waiters := int64(0), []any{}, []any{}
	for _, l := range m.leases {
		if l.semaphore != name {
			continue
		}
		owner := m.sessions[l.session]
		holder := map[string]any{"session": l.session, "count": l.count, "token": l.token, "held_ms": now - l.grantedAt,
			"expires_in_ms": max(0, owner.deadline-now), "metadata": owner.metadata}
		if l.revoked {
			holder["revoked"], holder["reason"] = true, l.reason
		} else {
			held += l.count
		}
		holders = append(holders, holder)
	}
	for _, r := range m.line(name) {
		owner := m.sessions[r.session]
		waiter := map[string]any{"session": r.session, "count": r.counts[name], "position": len(waiters) + 1, "waiting_ms": now - r.since,
			"expires_in_ms": max(0, owner.deadline-now), "metadata": owner.metadata}
		if r.unowned {
			waiter["unowned"] = true
		}
		waiters = append(waiters, waiter)
	}
	return map[string]any{"name": name, "permits": s.permits, "offset": s.offset, "held": held, "available": s.permits + s.offset - held,
		"level": s.level, "metadata": s.metadata, "epoch": s.epoch, "settings": s.settings, "modified_index": s.modified,
		"holder_count": len(holders), "waiter_count": len(waiters), "holders": holders, "waiters": waiters}
}

func (m *eventsModel) line(name string) (line []*modelRequest) {
	for _, r := range m.requests {
		if slices.Contains(r.lines, name) {
			line = append(line, r)
		}
	}
	return line
}

// session returns what GET shows at a moment, or the code of the refusal.
func (m *eventsModel) session(id string, now int64) any {
	s := m.sessions[id]
	if s == nil {
		switch end := m.ended[id]; end.cause {
		case "expired":
			return "expired-session"
		case "revoked":
			return "revoked " + end.reason
		}
		return "unknown-session"
	}
	left := max(0, s.deadline-now)
	leases, waiting := []any{}, []any{}
	for _, l := range m.leases {
		if l.session != id {
			continue
		}
		lease := map[string]any{"session": id, "semaphore": l.semaphore, "count": l.count, "token": l.token, "expires_in_ms": left, "waited_ms": 0}
		if l.revoked {
			lease["expires_in_ms"], lease["revoked"], lease["reason"] = 0, true, l.reason
		}
		leases = append(leases, lease)
	}
	for _, r := range m.requests {
		if r.session != id || r.listed != nil {
			continue
		}
		counts := map[string]int64{}
		for _, line := range r.lines {
			counts[line] = r.counts[line]
		}
		waiting = append(waiting, map[string]any{"semaphores": counts, "mode": r.mode,
			"position": slices.Index(m.line(r.lines[0]), r) + 1, "waiting_ms": now - r.since})
	}
	return map[string]any{"session": id, "ttl_ms": s.ttl, "expires_in_ms": left, "one_shot": s.oneShot, "metadata": s.metadata,
		"leases": leases, "items": []any{}, "waiting": waiting, "waiting_count": len(waiting), "waitlist": m.waitList(id, now)}
}

func (m *eventsModel) waitList(session string, now int64) []any {
	list := []any{}
	for _, e := range m.entries {
		if e.session != session {
			continue
		}
		shape := map[string]any{"name": e.semaphore, "epoch": e.epoch, "wanted": 0, "granted": e.granted, "deleted": e.deleted,
			"position": 0, "waiting_ms": 0}
		for _, r := range m.requests {
			if r.listed == e {
				shape["wanted"], shape["waiting_ms"] = r.counts[e.semaphore], now-r.since
				shape["position"] = slices.Index(m.line(e.semaphore), r) + 1
			}
		}
		list = append(list, shape)
	}
	return list
}

// canonical returns the JSON of a shape, without the members that the model does not know.
func canonical(shape any) string {
	encoded, err := json.Marshal(shape)
	if err != nil {
		return err.Error()
	}
	var plain any
	decoder := json.NewDecoder(strings.NewReader(string(encoded)))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return err.Error()
	}
	dropWhy(plain)
	encoded, _ = json.MarshalIndent(plain, "", " ")
	return string(encoded)
}

// dropWhy removes the reasons why requests wait.
func dropWhy(at any) {
	switch v := at.(type) {
	case []any:
		for _, member := range v {
			dropWhy(member)
		}
	case map[string]any:
		if v["blocked_by"] != nil {
			delete(v, "blocked_by")
			delete(v, "reason")
			delete(v, "obstacles")
			delete(v, "obstacle_count")
		}
		for _, member := range v {
			dropWhy(member)
		}
	}
}

// shown returns the body of the reply to a GET, or its code.
func shown(r apitest.Reply) string {
	if r.Status == 200 {
		return canonical(r.Body)
	}
	code := fmt.Sprint(r.Body["code"])
	if reason, ok := r.Body["reason"]; ok {
		code += " " + fmt.Sprint(reason)
	}
	return canonical(code)
}

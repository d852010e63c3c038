package client_test

import (
	"fmt"
	"time"
)

// unknown is the refusal of a session that does not exist.
func (f *fake) unknown(id string) answer {
	if r, remembered := f.ended[id]; remembered {
		return answer{refusal: &r}
	}
	return refuse(404, "unknown-session", "session", id)
}

func (f *fake) session(a *ask) (out answer) {
	f.do(func() {
		s := f.sessions[a.path[1]]
		switch {
		case s == nil && a.method != "DELETE":
			out = f.unknown(a.path[1])
		case a.method == "DELETE":
			if out = (answer{status: 204}); s != nil {
				f.end(s, "", "")
			}
		case a.method == "PUT":
			f.renew(s, s.ttlMS)
			out = answer{status: 200, body: f.life(s)}
			if a.query.Has("leases") && !f.behind {
				out.body["leases"] = f.holds(s)
			}
		default:
			body := f.life(s)
			body["leases"], body["waiting"] = f.holds(s), []any{}
			out = answer{status: 200, body: body}
		}
		out.index = f.index
	})
	return out
}

// holds lists a session's leases, the revoked ones too.
func (f *fake) holds(s *fakeSession) []any {
	leases := []any{}
	for _, l := range s.leases {
		leases = append(leases, f.lease(s, l, 0))
	}
	for name, reason := range s.revoked {
		leases = append(leases, map[string]any{"semaphore": name, "revoked": true, "reason": reason})
	}
	return leases
}

// lease shows a lease. One that is gone has no time left.
func (f *fake) lease(s *fakeSession, l *lease, waitedMS int64) map[string]any {
	left := int64(0)
	if s.leases[l.semaphore] == l {
		left = f.left(s.id)
	}
	return map[string]any{"session": s.id, "semaphore": l.semaphore, "count": l.count, "token": l.token,
		"expires_in_ms": left, "waited_ms": waitedMS}
}

func (f *fake) getLease(a *ask) (out answer) {
	f.do(func() {
		s, name := f.sessions[a.path[1]], a.path[3]
		switch {
		case s == nil:
			out = f.unknown(a.path[1])
		case f.sems[name] == nil:
			out = refuse(404, "unknown-semaphore", "semaphore", name)
		case s.revoked[name] != "":
			out = refuse(410, "revoked", "reason", s.revoked[name])
		case s.leases[name] == nil:
			out = refuse(404, "not-held")
		default:
			out = answer{status: 200, body: f.lease(s, s.leases[name], 0)}
		}
	})
	return out
}

func (f *fake) release(a *ask) answer {
	s, name := f.sessions[a.path[1]], a.path[3]
	switch {
	case f.sems[name] == nil:
		return refuse(404, "unknown-semaphore", "semaphore", name)
	case s == nil:
		return f.unknown(a.path[1])
	}
	l := s.leases[name]
	if token := a.query.Get("token"); token != "" && l != nil && token != fmt.Sprint(l.token) {
		return answer{status: 204} // another lease
	} else if token != "" && l == nil && s.revoked[name] == "" {
		return answer{status: 204} // it may wait for another one
	}
	delete(s.revoked, name)
	if l != nil {
		f.drop(s, l)
	}
	for _, r := range f.queue {
		for _, w := range r.wants {
			if r.session == s && w.Name == name {
				f.conclude(r, "unavailable")
			}
		}
	}
	return answer{status: 204}
}

// waiting serves the requests that may wait: the three acquires, and down.
func (f *fake) waiting(a *ask) (out answer) {
	var r *request
	var replayed bool
	var began int64
	f.do(func() {
		began = f.nowMS()
		k, refused := f.lookUp(a)
		switch {
		case refused != nil:
			out = *refused
			return
		case k != nil && k.request != nil:
			r, replayed = k.request, k.request.ended
			return
		case k != nil && k.outcome != nil:
			out = *k.outcome
			out.replayed = true
			return
		}
		if r, out = f.newRequest(a); r == nil {
			if k != nil {
				k.outcome = &answer{status: out.status, body: out.body, refusal: out.refusal}
			}
			return
		}
		if k != nil {
			k.request = r
		}
		if !r.ended {
			f.enqueue(r)
		}
		if a.query.Get("try") == "true" || r.deadline > 0 && r.deadline <= began {
			f.conclude(r, "unavailable")
		}
	})
	if r == nil {
		return out
	}
	f.until(a.ctx, time.Duration(a.waitMS())*time.Millisecond, func() bool { return r.ended })
	f.mu.Lock()
	defer f.mu.Unlock()
	out = f.told(r, began, replayed)
	out.replayed, out.index = replayed, f.index
	return out
}

// newRequest checks a request; a nil one is refused.
func (f *fake) newRequest(a *ask) (*request, answer) {
	r := &request{wants: []want{{a.path[1], a.count()}}}
	if a.path[0] == "sessions" {
		if r.mode = a.body.Mode; r.mode == "" {
			r.wants = []want{{a.path[3], a.count()}}
		} else {
			r.wants = a.body.Semaphores
		}
	}
	for _, w := range r.wants {
		sem := f.sems[w.Name]
		if sem == nil {
			return nil, refuse(404, "unknown-semaphore", "semaphore", w.Name)
		}
		if a.path[len(a.path)-1] != "down" && w.Count > sem.permits+max(sem.offset, 0) {
			return nil, refuse(409, "never", "permits", sem.permits)
		}
	}
	if a.path[0] == "sessions" {
		if r.session = f.sessions[a.path[1]]; r.session == nil {
			return nil, f.unknown(a.path[1])
		}
		return r, f.repeated(r)
	}
	if r.unowned = a.path[2] == "down"; r.unowned {
		r.partial = a.body.Partial
	}
	// A one-shot session: it ends with its request or lease.
	r.deadline = f.nowMS() + a.waitMS()
	r.session = f.open(86_400_000, true)
	r.session.ttlMS, r.session.metadata = a.body.TTL, a.body.Metadata
	if a.waitMS() == 0 {
		r.deadline = f.nowMS()
	}
	return r, answer{}
}

// repeated makes a request that the session holds or waits for be the same one.
func (f *fake) repeated(r *request) answer {
	held := true
	for _, w := range r.wants {
		held = held && r.session.leases[w.Name] != nil
	}
	if held {
		for _, w := range r.wants {
			r.granted = append(r.granted, r.session.leases[w.Name])
		}
		r.ended, r.at = true, f.nowMS()
	}
	return answer{}
}

// told is the present reply to a request.
func (f *fake) told(r *request, began int64, replayed bool) answer {
	switch {
	case !r.ended:
		body := map[string]any{"session": r.session.id, "semaphore": r.wants[0].Name, "position": f.position(r)}
		return answer{status: 202, body: body}
	case r.code == "unavailable" && r.partial:
		return answer{status: 200, body: map[string]any{"granted": 0, "value": 0}}
	case r.code != "":
		if known, remembered := f.ended[r.session.id]; remembered {
			return answer{refusal: &known}
		}
		return refuse(map[string]int{"deleted": 410, "unavailable": 409}[r.code], r.code)
	case r.unowned:
		return answer{status: 200, body: map[string]any{"granted": r.taken, "value": r.value}}
	}
	waited := max(0, r.at-began)
	var bodies []map[string]any
	for _, l := range r.granted {
		bodies = append(bodies, f.lease(r.session, l, waited))
	}
	switch {
	case r.session.oneShot:
		return answer{status: 201, body: bodies[0]}
	case r.mode == "":
		return answer{status: 200, body: bodies[0]}
	}
	return answer{status: 200, body: map[string]any{"session": r.session.id, "leases": bodies}}
}

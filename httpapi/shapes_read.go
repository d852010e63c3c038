package httpapi

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// The JSON shapes of reads.

type holderBody struct {
	Session     string    `json:"session"`
	Count       int64     `json:"count"`
	Token       uint64    `json:"token"`
	HeldMS      int64     `json:"held_ms"`
	ExpiresInMS int64     `json:"expires_in_ms"`
	Metadata    jsonPairs `json:"metadata"`
	revokedBody
}

// revokedBody marks a lease that an operator took away and that its session
// has not let go yet.
type revokedBody struct {
	Revoked bool   `json:"revoked,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

type waiterBody struct {
	Session     string    `json:"session"`
	Count       int64     `json:"count"`
	Position    int64     `json:"position"`
	WaitingMS   int64     `json:"waiting_ms"`
	ExpiresInMS int64     `json:"expires_in_ms"` // its session
	Metadata    jsonPairs `json:"metadata"`
	blockedBody
	Unowned bool `json:"unowned,omitempty"` // a down, or by a wait list
}

type wholeSemaphoreBody struct {
	semaphoreBody
	Holders []holderBody `json:"holders"`
	Waiters []waiterBody `json:"waiters"`
}

type semaphoresBody struct {
	Semaphores []semaphoreBody `json:"semaphores"`
	Next       *string         `json:"next"`
}

// heldBody is a lease as its session's page shows it.
type heldBody struct {
	leaseBody
	revokedBody
}

type requestBody struct {
	Semaphores wantCounts `json:"semaphores"`
	Mode       string     `json:"mode"`
	Position   int64      `json:"position"`
	WaitingMS  int64      `json:"waiting_ms"`
	blockedBody
}

// entryBody is one semaphore on a session's wait list.
type entryBody struct {
	Name      string `json:"name"`
	Epoch     uint64 `json:"epoch"`
	Wanted    int64  `json:"wanted"`
	Granted   int64  `json:"granted"`
	Deleted   bool   `json:"deleted"`
	Position  int64  `json:"position"` // of what waits; 0: nothing does
	WaitingMS int64  `json:"waiting_ms"`
}

type sessionBody struct {
	lifeBody
	Metadata     jsonPairs     `json:"metadata"`
	Leases       []heldBody    `json:"leases"`
	Waiting      []requestBody `json:"waiting"` // but for what waits by the wait list; the first pageBytes of them
	WaitingCount int           `json:"waiting_count"`
	WaitList     []entryBody   `json:"waitlist"`
}

type sessionsBody struct {
	Sessions []sessionBody `json:"sessions"`
	Next     *string       `json:"next"`
}

func viewedSemaphore(m *fsm.Machine, s fsm.SemaphoreView, holders, waiters int, nowMS int64) wholeSemaphoreBody {
	body := wholeSemaphoreBody{semaphoreBody: newSemaphoreBody(&s), Holders: []holderBody{}, Waiters: []waiterBody{}}
	bytes := 0
	for _, l := range m.Holders(s.Name, holders) {
		if bytes += memberBytes + pairBytes(l.Metadata) + len(l.Reason); bytes > pageBytes {
			break
		}
		body.Holders = append(body.Holders, holderBody{Session: formatSession(l.Session), Count: l.Count, Token: l.Token,
			HeldMS: left(nowMS, l.GrantedMS), ExpiresInMS: left(l.DeadlineMS, nowMS), Metadata: l.Metadata,
			revokedBody: revokedBody{l.Revoked, l.Reason}})
	}
	bytes = 0
	for _, w := range m.Waiters(s.Name, waiters) {
		waiter := waiterBody{Session: formatSession(w.Session), Count: countWanted(w.Wants, s.Name),
			Position: w.Position, WaitingMS: left(nowMS, w.EnqueuedMS), ExpiresInMS: left(w.DeadlineMS, nowMS),
			Metadata: w.Metadata, blockedBody: newBlockedBody(&w, s.Name), Unowned: w.Unowned}
		if bytes += memberBytes + pairBytes(w.Metadata) + waiter.bytes(); bytes > pageBytes {
			break
		}
		body.Waiters = append(body.Waiters, waiter)
	}
	return body
}

// memberBytes is about what a member of a list takes beside its texts.
const memberBytes = 160

func pairBytes(pairs []fsm.Pair) (n int) {
	for _, p := range pairs {
		n += len(p.Key) + len(p.Value)
	}
	return n
}

func countWanted(wants []fsm.Want, name string) int64 {
	for _, want := range wants {
		if want.Semaphore == name {
			return want.Count
		}
	}
	return 0
}

func viewedSession(m *fsm.Machine, s *fsm.SessionView, nowMS int64) sessionBody {
	body := sessionBody{
		lifeBody: lifeBody{Session: formatSession(s.ID), TTLMS: s.TTLMS, ExpiresInMS: left(s.DeadlineMS, nowMS), OneShot: s.OneShot},
		Metadata: s.Metadata, Leases: []heldBody{}, Waiting: []requestBody{}, WaitList: []entryBody{},
	}
	listed := map[uint64]bool{} // places
	for _, e := range m.WaitList(s.ID) {
		entry := entryBody{Name: e.Semaphore, Epoch: e.Epoch, Wanted: e.Wanted, Granted: e.Granted, Deleted: e.Deleted, Position: e.Position}
		if e.Place != 0 {
			entry.WaitingMS = left(nowMS, e.EnqueuedMS)
			listed[e.Place] = true
		}
		body.WaitList = append(body.WaitList, entry)
	}
	for i := range s.Leases {
		l := &s.Leases[i]
		body.Leases = append(body.Leases, heldBody{viewedLease(l, nowMS), revokedBody{l.Revoked, l.Reason}})
	}
	bytes := 0
	for _, w := range s.Waiting {
		if listed[w.Place] {
			continue
		}
		body.WaitingCount++
		if bytes > pageBytes {
			continue
		}
		request := requestBody{Semaphores: w.Wants, Mode: modeName(w.Mode), Position: w.Position,
			WaitingMS: left(nowMS, w.EnqueuedMS), blockedBody: newBlockedBody(&w, w.Wants[0].Semaphore)}
		bytes += memberBytes + request.bytes()
		for _, want := range w.Wants {
			bytes += len(want.Semaphore)
		}
		body.Waiting = append(body.Waiting, request)
	}
	return body
}

func viewedLease(l *fsm.LeaseView, nowMS int64) leaseBody {
	body := leaseBody{Session: formatSession(l.Session), Semaphore: l.Semaphore, Count: l.Count, Token: l.Token}
	if !l.Revoked {
		body.ExpiresInMS = left(l.DeadlineMS, nowMS)
	}
	return body
}

// viewedRequest tells a waiting request as an acquire that still waits is told.
func viewedRequest(w *fsm.RequestView, nowMS int64) waitingBody {
	body := waitingBody{Session: formatSession(w.Session), Position: w.Position, WaitingMS: left(nowMS, w.EnqueuedMS)}
	if w.Mode == 0 {
		body.Semaphore, body.Count = w.Wants[0].Semaphore, w.Wants[0].Count
	} else {
		body.Semaphores, body.Mode = w.Wants, modeName(w.Mode)
	}
	return body
}

type memberBody struct {
	ID            string `json:"id"`
	Peer          string `json:"peer"`
	Voter         bool   `json:"voter"`
	Leader        bool   `json:"leader"`
	LastContactMS *int64 `json:"last_contact_ms"` // null: this node does not know
	Lag           uint64 `json:"lag"`
	Knows         uint32 `json:"knows"` // the highest feature level that its program knows
}

type clusterBody struct {
	Node          string       `json:"node"`
	Cluster       *string      `json:"cluster"` // its id; null while this node doesn't know it
	Leader        *string      `json:"leader"`
	Term          uint64       `json:"term"`
	CommitIndex   uint64       `json:"commit_index"`
	AppliedIndex  uint64       `json:"applied_index"`
	ClusterTimeMS int64        `json:"cluster_time_ms"`
	StateHash     string       `json:"state_hash"`
	Level         uint32       `json:"level"`
	Members       []memberBody `json:"members"`
}

func newClusterBody(s cluster.Status) clusterBody {
	body := clusterBody{Node: s.Node, Term: s.Term, CommitIndex: s.CommitIndex, AppliedIndex: s.AppliedIndex,
		ClusterTimeMS: s.ClusterTimeMS, StateHash: hex.EncodeToString(s.StateHash[:]), Level: s.Level, Members: []memberBody{}}
	if s.Leader != "" {
		body.Leader = &s.Leader
	}
	if s.Cluster != "" {
		body.Cluster = &s.Cluster
	}
	for _, m := range s.Members {
		member := memberBody{ID: m.ID, Peer: m.Address, Voter: m.Voter, Leader: m.Leader, Lag: m.Lag, Knows: m.Knows}
		if m.LastContact >= 0 {
			ms := int64(m.LastContact / time.Millisecond)
			member.LastContactMS = &ms
		}
		body.Members = append(body.Members, member)
	}
	return body
}

func newSemaphoresBody(found []fsm.SemaphoreView, next string) semaphoresBody {
	body := semaphoresBody{Semaphores: make([]semaphoreBody, len(found))}
	for i := range found {
		body.Semaphores[i] = newSemaphoreBody(&found[i])
	}
	if next != "" {
		body.Next = &next
	}
	return body
}

// statusOfReady is what /readyz and /health answer.
func statusOfReady(ready bool) int {
	if ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

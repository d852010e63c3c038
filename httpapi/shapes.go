package httpapi

import (
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// The JSON shapes of replies to operations. Those of reads are in shapes_read.go.

type leaseBody struct {
	Session     string `json:"session"`
	Semaphore   string `json:"semaphore"`
	Count       int64  `json:"count"`
	Token       uint64 `json:"token"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	WaitedMS    int64  `json:"waited_ms"`
}

type leasesBody struct {
	Session string      `json:"session"`
	Leases  []leaseBody `json:"leases"`
}

type waitingBody struct {
	Session    string     `json:"session"`
	Semaphore  string     `json:"semaphore,omitempty"` // of a single request
	Count      int64      `json:"count,omitempty"`
	Semaphores wantCounts `json:"semaphores,omitempty"` // of several at once
	Mode       string     `json:"mode,omitempty"`
	Position   int64      `json:"position"`
	WaitingMS  int64      `json:"waiting_ms"`
}

type semaphoreBody struct {
	Name          string    `json:"name"`
	Permits       int64     `json:"permits"`
	Offset        int64     `json:"offset"`
	Held          int64     `json:"held"`
	Available     int64     `json:"available"`
	Level         *int32    `json:"level"`
	Metadata      jsonPairs `json:"metadata"`
	Epoch         uint64    `json:"epoch"`
	ModifiedIndex uint64    `json:"modified_index"`
	HolderCount   int64     `json:"holder_count"`
	WaiterCount   int64     `json:"waiter_count"`
}

type openedSemaphoreBody struct {
	semaphoreBody
	Created bool `json:"created"`
}

type valueBody struct {
	Value int64 `json:"value"`
}

type downBody struct {
	Granted int64 `json:"granted"`
	Value   int64 `json:"value"`
}

// lifeBody is a session without what it holds: the reply to a renewal.
type lifeBody struct {
	Session     string `json:"session"`
	TTLMS       int64  `json:"ttl_ms"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	OneShot     bool   `json:"one_shot"`
}

type restoredBody struct {
	lifeBody
	Created bool        `json:"created"`
	Leases  []leaseBody `json:"leases"`
}

// listedBody is an entry of a wait list, as adding to it answers.
type listedBody struct {
	Session  string `json:"session"`
	Name     string `json:"name"`
	Epoch    uint64 `json:"epoch"`
	Wanted   int64  `json:"wanted"`   // waits; 0: nothing does
	Granted  int64  `json:"granted"`  // taken, not delivered yet
	Position int64  `json:"position"` // of what waits
}

// deliveryBody is what a wait list had ready.
type deliveryBody struct {
	Count     int              `json:"count"`
	Completed []completionBody `json:"completed"`
}

type completionBody struct {
	Name    string `json:"name"`
	Epoch   uint64 `json:"epoch"`
	Granted int64  `json:"granted"`
	Deleted bool   `json:"deleted"`
	Token   uint64 `json:"token"`
}

// left answers how long something lives from now on, never negative.
func left(deadlineMS, nowMS int64) int64 { return max(0, deadlineMS-nowMS) }

func newLeaseBody(r *cluster.Reply, i int) leaseBody {
	g := r.Grants[i]
	return leaseBody{Session: formatSession(r.Session), Semaphore: g.Semaphore, Count: g.Count, Token: g.Token,
		ExpiresInMS: left(r.DeadlineMS, r.NowMS), WaitedMS: r.WaitedMS}
}

func newLeasesBody(r *cluster.Reply) leasesBody {
	body := leasesBody{Session: formatSession(r.Session), Leases: make([]leaseBody, len(r.Grants))}
	for i := range r.Grants {
		body.Leases[i] = newLeaseBody(r, i)
	}
	return body
}

// stillWaiting tells a request's place; of several at once, in its first line.
func stillWaiting(p *params, r *cluster.Reply) waitingBody {
	body := waitingBody{Session: formatSession(r.Session), Position: r.Position, WaitingMS: r.WaitingMS}
	if p.mode == 0 {
		body.Semaphore, body.Count = r.Subject, r.Asked
	} else {
		body.Semaphores, body.Mode = p.wants, modeName(p.mode)
	}
	return body
}

func modeName(m fsm.Mode) string {
	if m == fsm.Any {
		return "any"
	}
	return "all" // a single semaphore is all of one
}

func newSemaphoreBody(s *fsm.SemaphoreView) semaphoreBody {
	return semaphoreBody{Name: s.Name, Permits: s.Permits, Offset: s.Offset, Held: s.Held, Available: s.Available,
		Level: s.Level, Metadata: s.Metadata, Epoch: s.Epoch, ModifiedIndex: s.ModifiedIndex,
		HolderCount: s.Holders, WaiterCount: s.Waiters}
}

func newLifeBody(r *cluster.Reply) lifeBody {
	return lifeBody{Session: formatSession(r.Session), TTLMS: r.TTLMS, ExpiresInMS: left(r.DeadlineMS, r.NowMS), OneShot: r.OneShot}
}

func newOpenedBody(p *params, r *cluster.Reply) sessionBody {
	return sessionBody{lifeBody: newLifeBody(r), Metadata: p.metadata, Leases: []heldBody{}, Waiting: []requestBody{},
		WaitList: []entryBody{}}
}

func newRestoredBody(r *cluster.Reply) restoredBody {
	return restoredBody{lifeBody: newLifeBody(r), Created: r.Created, Leases: newLeasesBody(r).Leases}
}

func newDeliveryBody(r *cluster.Reply) deliveryBody {
	body := deliveryBody{Count: len(r.Completed), Completed: make([]completionBody, len(r.Completed))}
	for i, c := range r.Completed {
		body.Completed[i] = completionBody{Name: c.Semaphore, Epoch: c.Epoch, Granted: c.Granted, Deleted: c.Deleted, Token: c.Token}
	}
	return body
}

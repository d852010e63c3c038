package reads

import (
	"fmt"
	"slices"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

type holderBody struct {
	Session     string         `json:"session"`
	Group       string         `json:"group,omitempty"`
	Count       int64          `json:"count"`
	Token       uint64         `json:"token"`
	HeldMS      int64          `json:"held_ms"`
	ExpiresInMS int64          `json:"expires_in_ms"`
	Metadata    exchange.Pairs `json:"metadata"`
	RevokedBody
	TimesBody
}

// RevokedBody marks a lease that an operator revoked and that its session has not released yet.
type RevokedBody struct {
	Revoked bool   `json:"revoked,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

type waiterBody struct {
	Session      string         `json:"session"`
	Group        string         `json:"group,omitempty"`
	Count        int64          `json:"count"`
	Position     int64          `json:"position"`
	GroupsBefore int64          `json:"groups_before,omitempty"` // of a pool
	WaitingMS    int64          `json:"waiting_ms"`
	ExpiresInMS  int64          `json:"expires_in_ms"` // its session
	Metadata     exchange.Pairs `json:"metadata"`
	blockedBody
	Unowned bool `json:"unowned,omitempty"` // a down, or by a wait list
}

// WholeSemaphoreBody is a semaphore with its first holders and waiters.
type WholeSemaphoreBody struct {
	SemaphoreBody
	Holders []holderBody `json:"holders"`
	Waiters []waiterBody `json:"waiters"`
}

// HoldersBody is a page of the holders of a semaphore.
type HoldersBody struct {
	Holders []holderBody `json:"holders"`
	Next    *string      `json:"next"`
}

// WaitersBody is a page of the waiting requests of a semaphore.
type WaitersBody struct {
	Waiters []waiterBody `json:"waiters"`
	Next    *string      `json:"next"`
}

// SemaphoresBody is a page of semaphores.
type SemaphoresBody struct {
	Semaphores []SemaphoreBody `json:"semaphores"`
	Next       *string         `json:"next"`
}

// HeldBody is a lease as its session's page shows it.
type HeldBody struct {
	LeaseBody
	RevokedBody
}

// HeldLeasesBody is a page of the leases of a session.
type HeldLeasesBody struct {
	Leases []HeldBody `json:"leases"`
	Next   *string    `json:"next"`
}

type requestBody struct {
	listBody
	Mode         string `json:"mode"`
	Position     int64  `json:"position"`
	GroupsBefore int64  `json:"groups_before,omitempty"` // of a pool
	WaitingMS    int64  `json:"waiting_ms"`
	blockedBody
}

// entryBody is one semaphore on a session's wait list.
type entryBody struct {
	Name      string `json:"name"`
	Group     string `json:"group,omitempty"`
	Epoch     uint64 `json:"epoch"`
	Wanted    int64  `json:"wanted"`
	Granted   int64  `json:"granted"`
	Deleted   bool   `json:"deleted"`
	Position  int64  `json:"position"` // of the waiting request, or 0
	WaitingMS int64  `json:"waiting_ms"`
}

// SessionBody is a session with its leases, requests, wait list and items.
type SessionBody struct {
	LifeBody
	Metadata     exchange.Pairs `json:"metadata"`
	Leases       []HeldBody     `json:"leases"`
	Waiting      []requestBody  `json:"waiting"` // without the requests of the wait list; the first pageBytes
	WaitingCount int            `json:"waiting_count"`
	WaitList     []entryBody    `json:"waitlist"`
	Items        []string       `json:"items"` // the names of the items that it holds
	termsBody
}

// termsBody has the terms on which a session was opened to hold items; it is empty for other sessions.
type termsBody struct {
	About       string `json:"about,omitempty"`
	OnEndItems  string `json:"on_end_items,omitempty"`
	ItemDelayMS int64  `json:"item_delay_ms,omitempty"`
}

// SetTerms shows the terms on which a session was opened to hold items.
func (b *SessionBody) SetTerms(terms fsm.HolderView) {
	b.termsBody = termsBody{About: terms.About, OnEndItems: "release", ItemDelayMS: terms.DelayMS}
	if terms.DeleteItems {
		b.OnEndItems = "delete"
	}
}

// SessionsBody is a page of sessions.
type SessionsBody struct {
	Sessions []SessionBody `json:"sessions"`
	Next     *string       `json:"next"`
}

// viewedSemaphore shows a semaphore with its first holders and waiters.
func viewedSemaphore(m *fsm.Machine, s fsm.SemaphoreView, holders, waiters int, nowMS int64, id *access.Identity) WholeSemaphoreBody {
	all := part{name: s.Name}
	return WholeSemaphoreBody{NewSemaphoreBody(&s, nowMS), pageOfHolders(m, all, 0, holders, nowMS, id).Holders,
		pageOfWaiters(m, all, fsm.LinePlace{}, waiters, nowMS, id).Waiters}
}

// shownID returns the id of a session, or "" if the identity may not see it.
func shownID(m *fsm.Machine, session uint64, id *access.Identity) string {
	if owner, _ := m.OwnerOf(session); !id.SeesID(owner) {
		return ""
	}
	return exchange.FormatSession(session)
}

// memberBytes estimates the bytes of a member of a list without its texts.
const memberBytes = 160

// slotBytes estimates the bytes of slots: up to 7 digits and a comma each.
func slotBytes(runs []fsm.SlotRun) (n int) {
	for _, run := range runs {
		n += 8 * int(run.Count)
	}
	return n
}

func pairBytes(pairs []fsm.Pair) (n int) {
	for _, p := range pairs {
		n += len(p.Key) + len(p.Value)
	}
	return n
}

// NewSessionBody shows a session that was just opened.
func NewSessionBody(life LifeBody, metadata []fsm.Pair) SessionBody {
	return SessionBody{LifeBody: life, Metadata: metadata, Leases: []HeldBody{}, Waiting: []requestBody{}, WaitList: []entryBody{}, Items: []string{}}
}

// viewedSession shows a session with the semaphores and items that the identity's prefixes cover.
func viewedSession(m *fsm.Machine, s *fsm.SessionView, nowMS int64, id *access.Identity) SessionBody {
	body := NewSessionBody(LifeBody{Session: exchange.FormatSession(s.ID), TTLMS: s.TTLMS, ExpiresInMS: Left(s.DeadlineMS, nowMS), OneShot: s.OneShot}, s.Metadata)
	if terms, ok := m.Holder(s.ID); ok {
		body.SetTerms(terms)
	}
	for _, item := range m.HeldItems(s.ID) {
		if id.Sees(item) {
			body.Items = append(body.Items, item)
		}
	}
	listed := map[uint64]bool{} // places
	for _, e := range m.WaitList(s.ID) {
		if !id.Sees(e.Semaphore) {
			continue
		}
		entry := entryBody{Name: e.Semaphore, Group: e.Group, Epoch: e.Epoch, Wanted: e.Wanted, Granted: e.Granted, Deleted: e.Deleted, Position: e.Position}
		if e.Place != 0 {
			entry.WaitingMS = Left(nowMS, e.EnqueuedMS)
			listed[e.Place] = true
		}
		body.WaitList = append(body.WaitList, entry)
	}
	for i := range s.Leases {
		l := &s.Leases[i]
		if !id.Sees(l.Semaphore) {
			continue
		}
		body.Leases = append(body.Leases, HeldBody{viewedLease(l, nowMS), RevokedBody{l.Revoked, l.Reason}})
	}
	bytes := 0
	for _, w := range s.Waiting {
		if listed[w.Place] || slices.ContainsFunc(w.Wants, func(want fsm.Want) bool { return !id.Sees(want.Semaphore) }) {
			continue
		}
		body.WaitingCount++
		if bytes > pageBytes {
			continue
		}
		request := requestBody{Mode: exchange.ModeName(w.Mode), Position: w.Position, GroupsBefore: w.Ahead,
			WaitingMS: Left(nowMS, w.EnqueuedMS), blockedBody: newBlockedBody(m, &w, w.Wants[0].Semaphore)}
		request.List(w.Wants)
		bytes += memberBytes + request.bytes()
		for _, want := range w.Wants {
			bytes += len(want.Semaphore) + len(want.Group)
		}
		body.Waiting = append(body.Waiting, request)
	}
	return body
}

func viewedLease(l *fsm.LeaseView, nowMS int64) LeaseBody {
	body := LeaseBody{Session: exchange.FormatSession(l.Session), Semaphore: l.Semaphore, Group: l.DetailsOrZero().Group, Count: l.Count, Token: l.Token, TimesBody: NewTimesBody(&l.Grant, nowMS)}
	if !l.Revoked {
		body.ExpiresInMS = Left(l.DeadlineMS, nowMS)
	}
	return body
}

// viewedRequest shows a waiting request in the same form as the reply to its acquire, with the semaphores that an
// identity may read.
func viewedRequest(w *fsm.RequestView, nowMS int64, id *access.Identity) WaitingBody {
	body := WaitingBody{Session: exchange.FormatSession(w.Session), Position: w.Position, GroupsBefore: w.Ahead, WaitingMS: Left(nowMS, w.EnqueuedMS)}
	if w.Mode == 0 {
		body.Semaphore, body.Group, body.Count = w.Wants[0].Semaphore, w.Wants[0].Group, w.Wants[0].Count
	} else {
		body.Mode = exchange.ModeName(w.Mode)
		body.List(slices.DeleteFunc(w.Wants, func(want fsm.Want) bool { return !id.Sees(want.Semaphore) }))
	}
	return body
}

// blockedBody tells why a request waits: a code, a sentence for people, and the first obstacles, at most shownObstacles.
// An obstacle is a queue in which the request can't be served now.
type blockedBody struct {
	BlockedBy     string         `json:"blocked_by"`
	Reason        string         `json:"reason"`
	Obstacles     []obstacleBody `json:"obstacles"`
	ObstacleCount int            `json:"obstacle_count"` // of all
}

// shownObstacles bounds the obstacles of a waiting request in a reply: the request may wait in many queues, each with a
// long name.
const shownObstacles = 8

type obstacleBody struct {
	Semaphore string `json:"semaphore"`
	Group     string `json:"group,omitempty"`
	BlockedBy string `json:"blocked_by"`
	Needs     int64  `json:"needs"`
	Available int64  `json:"available"`
	Limit     *int64 `json:"limit,omitempty"` // of the group that may use no more
	Used      *int64 `json:"used,omitempty"`
}

func viewedObstacle(o *fsm.Obstacle) obstacleBody {
	body := obstacleBody{Semaphore: o.Semaphore, Group: o.Group, BlockedBy: o.BlockedBy.String(), Needs: o.Needs, Available: o.Available}
	if o.BlockedBy == fsm.BlockGroupLimit {
		body.Limit, body.Used = &o.Limit, &o.Used
	}
	return body
}

// bytes estimates the length of its texts.
func (b *blockedBody) bytes() int {
	n := len(b.Reason)
	for i := range b.Obstacles {
		n += memberBytes + len(b.Obstacles[i].Semaphore) + len(b.Obstacles[i].Group)
	}
	return n
}

// newBlockedBody returns why a request waits, as seen in the line of the semaphore with this name.
func newBlockedBody(m *fsm.Machine, w *fsm.RequestView, name string) blockedBody {
	shown := min(len(w.Obstacles), shownObstacles)
	body := blockedBody{BlockedBy: w.BlockedBy.String(), Obstacles: make([]obstacleBody, shown), ObstacleCount: len(w.Obstacles)}
	for i := range shown {
		body.Obstacles[i] = viewedObstacle(&w.Obstacles[i])
	}
	switch w.BlockedBy {
	case fsm.BlockAhead:
		body.Reason = "The request before it in the line comes first."
		if ahead := w.Position - 1; ahead > 1 {
			body.Reason = fmt.Sprintf("%d requests before it in the line come first.", ahead)
		}
	case fsm.BlockPermits, fsm.BlockGroupLimit, fsm.BlockReturning:
		here := func(o fsm.Obstacle) bool { return o.Semaphore == name && o.Group == w.Group }
		if i := slices.IndexFunc(w.Obstacles, here); i >= 0 {
			body.Reason = tooFew(w, &w.Obstacles[i])
			if w.BlockedBy == fsm.BlockReturning {
				s, _ := m.Semaphore(name)
				body.Reason += comingBack(s.Returning)
			}
		}
	case fsm.BlockPaused:
		s, _ := m.Semaphore(name)
		body.Reason = exchange.Paused(s.Settings.Paused)
	case fsm.BlockGroups:
		body.Reason = otherGroups(w.Ahead)
	case fsm.BlockOther, fsm.BlockElsewhere:
		body.Reason = otherLines(w, name)
	}
	return body
}

func comingBack(permits int64) string {
	if permits == 1 {
		return " 1 comes back later."
	}
	return fmt.Sprintf(" %d come back later.", permits)
}

// otherLines says in which other lines a request waits because it is for several semaphores.
func otherLines(w *fsm.RequestView, name string) string {
	others := slices.DeleteFunc(slices.Clone(w.Obstacles), func(o fsm.Obstacle) bool { return o.Semaphore == name && o.Group == w.Group })
	switch {
	case len(others) != 1:
		return "It waits for the other semaphores of its list, see obstacles."
	case others[0].Semaphore == name:
		return fmt.Sprintf("It waits for %q in another group of its list.", name)
	}
	return fmt.Sprintf("It waits for %q, another semaphore of its list.", others[0].Semaphore)
}

// otherGroups says how many groups of a semaphore are served first.
func otherGroups(ahead int64) string {
	switch ahead {
	case 0:
		return "Another group comes first."
	case 1:
		return "1 group that uses less comes first."
	}
	return fmt.Sprintf("%d groups that use less come first.", ahead)
}

// tooFew says what the first request of a line needs, and why it can't have that: too few permits are available, or its
// group uses all of its limit.
func tooFew(w *fsm.RequestView, o *fsm.Obstacle) string {
	switch {
	case o.BlockedBy == fsm.BlockGroupLimit && o.Needs > 1 && !w.Partial:
		return fmt.Sprintf("It needs %d. %s", o.Needs, exchange.UsesAll(o.Group, o.Used, o.Limit))
	case o.BlockedBy == fsm.BlockGroupLimit:
		return exchange.UsesAll(o.Group, o.Used, o.Limit)
	case o.Available < 0:
		return fmt.Sprintf("It needs %d, and %d more are held than there are permits.", o.Needs, -o.Available)
	case w.Partial:
		return "Nothing is available."
	}
	return fmt.Sprintf("It needs %d, %d available.", o.Needs, o.Available)
}

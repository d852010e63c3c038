package httpapi

import (
	"fmt"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// limited is what a limit of the state machine bounds, and the flag that sets it.
type limited struct {
	what, flag string
	value      func(l *fsm.Limits) int64
}

// limits has a row for each of the state machine's limits that an operator sets.
var limits = map[fsm.Rule]limited{
	fsm.RuleSemaphores:    {"semaphores", "max-semaphores", func(l *fsm.Limits) int64 { return l.Semaphores }},
	fsm.RuleSessions:      {"sessions", "max-sessions", func(l *fsm.Limits) int64 { return l.Sessions }},
	fsm.RuleLeases:        {"leases", "max-leases", func(l *fsm.Limits) int64 { return l.Leases }},
	fsm.RuleSessionLeases: {"leases of one session", "max-session-leases", func(l *fsm.Limits) int64 { return l.SessionLeases }},
	fsm.RuleWaiting:       {"waiting requests", "max-waiting", func(l *fsm.Limits) int64 { return l.Waiting }},
	fsm.RuleQueue:         {"waiting requests on one semaphore", "max-queue", func(l *fsm.Limits) int64 { return l.Queue }},
	fsm.RuleSessionWaits:  {"waiting requests of one session", "max-session-waiting", func(l *fsm.Limits) int64 { return l.SessionWaiting }},
	fsm.RuleKeys:          {"idempotency keys, or of what they take", "max-keys", func(l *fsm.Limits) int64 { return l.Keys }},
	fsm.RuleOwnerKeys:     {"idempotency keys, or of what they take, of one identity: half of what all may have", "max-keys", func(l *fsm.Limits) int64 { return l.Keys - l.Keys/2 }},
	fsm.RuleWaitList:      {"semaphores on one wait list", "max-wait-list", func(l *fsm.Limits) int64 { return l.WaitList }},
}

// conclude is the operation's answer; one that a limit refuses names the limit.
func (h *Handler) conclude(op *operation, p *params, r *cluster.Reply) answer {
	a := op.conclude(p, r)
	refusal, refused := a.body.(*problem)
	limit, known := limits[r.Rule]
	if !refused || !known || r.Code != fsm.LimitReached {
		return a
	}
	var of fsm.Limits
	h.node.View(func(m *fsm.Machine) { of = m.Limits() })
	most := limit.value(&of)
	refusal.Limit = &most
	refusal.Detail = fmt.Sprintf("The limit of %d %s (--%s) is reached. Nothing was changed.", most, limit.what, limit.flag)
	return a
}

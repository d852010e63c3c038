package httpapi

import (
	"strings"

	"github.com/signalbox/signalbox/fsm"
)

// problem is a refusal as RFC 9457 shapes it. It is an error, so that handlers
// return it; it is rendered where the chain ends, or into a batch's result.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`

	Field       string  `json:"field,omitempty"` // member or parameter that is wrong
	Semaphore   string  `json:"semaphore,omitempty"`
	Session     string  `json:"session,omitempty"`
	Reason      string  `json:"reason,omitempty"` // an operator's
	Rule        string  `json:"rule,omitempty"`
	Count       *int64  `json:"count,omitempty"`   // asked
	Holding     *int64  `json:"holding,omitempty"` // held or waited for
	Permits     *int64  `json:"permits,omitempty"`
	Most        *int64  `json:"most,omitempty"` // that could be granted at all
	Available   *int64  `json:"available,omitempty"`
	QueueLength *int64  `json:"queue_length,omitempty"`
	Level       *int32  `json:"level,omitempty"`
	LowestLevel *int32  `json:"lowest_level,omitempty"`
	Epoch       *uint64 `json:"epoch,omitempty"` // the present one
	Limit       *int64  `json:"limit,omitempty"`
	Index       *uint64 `json:"index,omitempty"` // that this node has
}

// Error is the problem's code and detail, for logs.
func (p *problem) Error() string { return p.Code + ": " + p.Detail }

func newProblem(code, detail string) *problem {
	k := kinds[code]
	return &problem{Type: "/problems/" + code, Title: k.title, Status: k.status, Detail: detail, Code: code}
}

// invalid refuses a member or parameter, and names it in the detail too; field may
// be empty.
func invalid(field, detail string) *problem {
	shown := strings.ToValidUTF8(ellipsis(field), "")
	if plain := strings.NewReplacer("-", " ", "_", " "); !strings.Contains(strings.ToLower(plain.Replace(detail)), strings.ToLower(plain.Replace(shown))) {
		detail = shown + ": " + detail
	}
	p := newProblem("invalid-request", detail)
	p.Field = shown
	return p
}

const overDetail = "The first request with this key was granted a session or leases, and all or some of that is over since. Draw a new key to ask anew."

// overSince refuses the repeat of a key whose first request was granted something
// that has ended since: a success would tell of what the client has no more.
func overSince(r *fsm.Result) *problem {
	p := newProblem("over", overDetail)
	if r.Session != 0 {
		p.Session = formatSession(r.Session)
	}
	return p
}

// refused tells a result of the state machine that is not an answer.
func refused(r *fsm.Result) *problem {
	row := refusals[r.Code]
	if row.code == "" {
		return problemOf(errInternal) // an answer that this operation does not have
	}
	p := newProblem(row.code, row.detail(r))
	p.Semaphore, p.Reason, p.Rule = r.Subject, r.Reason, r.Rule.String()
	if r.Session != 0 {
		p.Session = formatSession(r.Session)
	}
	if r.Epoch != 0 {
		p.Epoch = &r.Epoch
	}
	describeField(p, r)
	describeCounts(p, r)
	return p
}

func describeField(p *problem, r *fsm.Result) {
	switch r.Code {
	case fsm.InvalidCount:
		p.Field = "count"
	case fsm.PermitsRequired:
		p.Field = "permits"
	case fsm.MixedLevels:
		p.Field = "semaphores"
	}
}

// describeCounts adds the numbers that help with each refusal.
func describeCounts(p *problem, r *fsm.Result) {
	switch r.Code {
	case fsm.Never, fsm.Unavailable, fsm.Overflow:
		p.Available, p.Permits = &r.Available, &r.Permits
	case fsm.LeaseExists:
		p.Holding = &r.Holding
	case fsm.Hierarchy, fsm.MixedLevels:
		p.Level, p.LowestLevel = r.Level, r.LowestLevel
	}
	switch r.Code {
	case fsm.Never:
		p.Most = &r.Full
	case fsm.Unavailable:
		p.QueueLength = &r.QueueLength
	case fsm.Withdrawn:
		p.Reason = "withdrawn"
	}
	if r.Asked != 0 {
		p.Count = &r.Asked
	}
}

// badBody says that a body is not what the strict reader takes.
func badBody(f *jsonFault) *problem {
	p := newProblem("invalid-request", "The body is not one JSON document in UTF-8: "+f.Error()+".")
	p.Field = ellipsis(strings.ToValidUTF8(f.field, ""))
	return p
}

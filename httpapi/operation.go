package httpapi

import (
	"net/http"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// operation is one thing that a client may ask the state machine for: a row of
// the table that the single routes and the batch share, so that both read and
// answer alike.
type operation struct {
	name     string // in a batch
	names    fields // what it is about: needed, from the path or in a batch
	body     fields // other members of its body
	needed   fields // those without a default
	lives    bool   // its reply is a session or leases, which have an end
	query    fields // of its query on a single route, of its body in a batch
	defaults func(p *params)
	command  func(p *params, node Commands) fsm.Command
	answer   func(p *params, r *cluster.Reply) answer
}

// answer is what one operation gets: a status and a body, nil for none.
type answer struct {
	status   int
	body     any
	location string // of what was created
	replayed bool
}

// batchFields are the members that an operation takes in a batch: it has no
// path and no query there, and nothing waits.
func (op *operation) batchFields() fields {
	all := op.names | op.body | op.query | fieldOp | fieldKey
	return all &^ (fieldWait | fieldName | fieldShowLeases)
}

// routeNeeds are what a single route needs beside its path, batchNeeds what an
// operation of a batch needs.
func (op *operation) routeNeeds() fields {
	if op.body.has(fieldName) {
		return op.needed | fieldName
	}
	return op.needed
}

func (op *operation) batchNeeds() fields { return op.needed | op.names }

// complete checks that nothing needed is absent, and what goes together, and
// puts in the defaults.
func (op *operation) complete(p *params, needed fields) error {
	if name, lacks := p.lacking(needed); lacks {
		return invalid(name, "This is needed.")
	}
	if p.try && p.waitMS > 0 {
		return invalid("try", "A try never waits: give try or wait, not both.")
	}
	if op.lives && p.given.has(fieldTTL) && p.ttlMS == 0 {
		return invalid("ttl", "A ttl is at least 1 ms here: what is opened would be over at once. A renewal with a ttl of 0 ends a session.")
	}
	if op.defaults != nil {
		op.defaults(p)
	}
	return nil
}

func (op *operation) call(p *params, node Commands) cluster.Call {
	return cluster.Call{
		Command: op.command(p, node),
		Key:     p.key,
		Wait:    time.Duration(p.waitMS) * time.Millisecond,
	}
}

// conclude tells a reply: the operation's own answer, that it still waits, or
// the refusal.
func (op *operation) conclude(p *params, r *cluster.Reply) answer {
	if len(r.Each) == 1 { // a renewal: its own result
		replayed := r.Replayed
		r.Result = r.Each[0]
		r.Replayed = replayed
	}
	var a answer
	switch {
	case r.Code == fsm.OK && r.Replayed && op.lives && r.DeadlineMS == 0:
		a = refusedAnswer(overSince(&r.Result))
	case r.Code == fsm.OK, r.Code == fsm.NothingReady:
		a = op.answer(p, r)
	case r.Code == fsm.Waiting:
		a = answer{status: http.StatusAccepted, body: stillWaiting(p, r)}
	case r.Code == fsm.Unavailable && p.partial:
		a = downAnswer(p, r)
	default:
		a = refusedAnswer(refused(&r.Result))
	}
	a.replayed = r.Replayed
	return a
}

func refusedAnswer(p *problem) answer { return answer{status: p.Status, body: p} }

func ok(body any) answer { return answer{status: http.StatusOK, body: body} }

func created(body any, location string) answer {
	return answer{status: http.StatusCreated, body: body, location: location}
}

func noContent(*params, *cluster.Reply) answer { return answer{status: http.StatusNoContent} }

// operations is the table, in the order of docs/api.md.
var operations = []*operation{
	&opPut, &opCreate, &opDelete, &opSet, &opUp, &opDown,
	&opAcquireOnce, &opAcquire, &opAcquireMany, &opRelease, &opResize, &opRevoke,
	&opOpen, &opRenew, &opEnd, &opRevokeSession, &opRestore,
	&opListAdd, &opListRemove, &opListDeliver,
}

// operationNamed finds an operation by its name in a batch.
func operationNamed(name string) *operation {
	for _, op := range operations {
		if op.name == name {
			return op
		}
	}
	return nil
}

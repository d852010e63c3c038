package httpapi

import (
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

var opListAdd = operation{
	name:     "list-add",
	names:    fieldSession | fieldSemaphore,
	body:     fieldCount,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.ListAdd{Session: p.session, Name: p.semaphore, Count: p.count, Epoch: p.epoch}
	},
	answer: func(p *params, r *cluster.Reply) answer {
		return ok(listedBody{Session: formatSession(r.Session), Name: p.semaphore, Epoch: r.Epoch,
			Wanted: r.Asked, Granted: r.Granted, Position: r.Position})
	},
}

var opListRemove = operation{
	name:  "list-remove",
	names: fieldSession | fieldSemaphore,
	query: fieldEpoch,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.ListRemove{Session: p.session, Name: p.semaphore, Epoch: p.epoch}
	},
	answer: noContent,
}

var opListDeliver = operation{
	name:  "list-deliver",
	names: fieldSession,
	body:  fieldWait,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.ListDeliver{Session: p.session}
	},
	answer: func(_ *params, r *cluster.Reply) answer { return ok(newDeliveryBody(r)) },
}

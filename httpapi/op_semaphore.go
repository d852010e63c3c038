package httpapi

import (
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

var opPut = operation{
	name:  "put",
	names: fieldSemaphore,
	body:  fieldPermits | fieldLevel | fieldMetadata,
	query: fieldEpoch | fieldOnlyNew,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.PutSemaphore{
			Name:     p.semaphore,
			Permits:  fsm.Change[int64]{Given: p.given.has(fieldPermits), Value: p.permits},
			Level:    fsm.Change[*int32]{Given: p.given.has(fieldLevel), Value: p.level},
			Metadata: fsm.Change[[]fsm.Pair]{Given: p.given.has(fieldMetadata), Value: p.metadata},
			OnlyNew:  p.onlyNew,
			Epoch:    p.epoch,
		}
	},
	answer: func(_ *params, r *cluster.Reply) answer {
		if r.Created {
			return created(newSemaphoreBody(r.Semaphore), semaphorePath(r.Semaphore.Name))
		}
		return ok(newSemaphoreBody(r.Semaphore))
	},
}

var opCreate = operation{
	name:   "create",
	names:  fieldSemaphore,
	body:   fieldName | fieldPermits | fieldLevel | fieldMetadata,
	needed: fieldPermits,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.CreateSemaphore{Name: p.semaphore, Permits: p.permits, Level: p.level, Metadata: p.metadata}
	},
	answer: func(_ *params, r *cluster.Reply) answer {
		body := openedSemaphoreBody{newSemaphoreBody(r.Semaphore), r.Created}
		if r.Created {
			return created(body, semaphorePath(r.Semaphore.Name))
		}
		return ok(body)
	},
}

var opDelete = operation{
	name:  "delete",
	names: fieldSemaphore,
	query: fieldEpoch,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.DeleteSemaphore{Name: p.semaphore, Epoch: p.epoch}
	},
	answer: noContent,
}

var opSet = operation{
	name:   "set",
	names:  fieldSemaphore,
	body:   fieldValue,
	needed: fieldValue,
	query:  fieldEpoch,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.SetValue{Name: p.semaphore, Value: p.value, Epoch: p.epoch}
	},
	answer: valueAnswer,
}

var opUp = operation{
	name:     "up",
	names:    fieldSemaphore,
	body:     fieldCount,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.Up{Name: p.semaphore, Count: p.count, Epoch: p.epoch}
	},
	answer: valueAnswer,
}

var opDown = operation{
	name:     "down",
	names:    fieldSemaphore,
	body:     fieldCount | fieldWait | fieldPartial,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, node Commands) fsm.Command {
		c := fsm.Down{Name: p.semaphore, Count: p.count, Partial: p.partial, Epoch: p.epoch, WaitMS: p.waitMS}
		if p.waitMS > 0 {
			c.Session = node.DrawSession()
		}
		return c
	},
	answer: downAnswer,
}

func countOfOne(p *params) {
	if !p.given.has(fieldCount) {
		p.count = 1
	}
}

func valueAnswer(_ *params, r *cluster.Reply) answer { return ok(valueBody{r.Value}) }

// downAnswer tells what a down got; a partial one that got nothing too.
func downAnswer(_ *params, r *cluster.Reply) answer {
	value := r.Value
	if r.Code == fsm.Unavailable {
		value = r.Available
	}
	return ok(downBody{Granted: r.Granted, Value: value})
}

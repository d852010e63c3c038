package httpapi

import (
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// defaultTTLMS is the ttl of a one-call acquire that names none.
const defaultTTLMS = 30_000

var opAcquireOnce = operation{
	name:  "acquire-once",
	names: fieldSemaphore,
	body:  fieldCount | fieldTTL | fieldWait | fieldMetadata,
	query: fieldEpoch,
	defaults: func(p *params) {
		countOfOne(p)
		if !p.given.has(fieldTTL) {
			p.ttlMS = defaultTTLMS
		}
	},
	lives: true,
	command: func(p *params, node Commands) fsm.Command {
		return fsm.AcquireOnce{Name: p.semaphore, Count: p.count, TTLMS: p.ttlMS, Metadata: p.metadata,
			Epoch: p.epoch, WaitMS: p.waitMS, Session: node.DrawSession()}
	},
	answer: func(_ *params, r *cluster.Reply) answer {
		return created(newLeaseBody(r, 0), sessionPath(r.Session))
	},
}

var opAcquire = operation{
	name:  "acquire",
	names: fieldSession | fieldSemaphore,
	body:  fieldCount | fieldTTL | fieldWait,
	query: fieldEpoch | fieldTry,
	defaults: func(p *params) {
		countOfOne(p)
		keepTTL(p)
	},
	lives: true,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.Acquire{Session: p.session, Name: p.semaphore, Count: p.count, TTLMS: p.ttlMS, Try: p.try, Epoch: p.epoch}
	},
	answer: leaseAnswer,
}

var opAcquireMany = operation{
	name:   "acquire-many",
	names:  fieldSession,
	body:   fieldSemaphores | fieldMode | fieldWait,
	needed: fieldSemaphores | fieldMode,
	query:  fieldTry,
	lives:  true,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.AcquireMany{Session: p.session, Wants: p.wants, Mode: p.mode, Try: p.try}
	},
	answer: func(_ *params, r *cluster.Reply) answer { return ok(newLeasesBody(r)) },
}

var opRelease = operation{
	name:  "release",
	names: fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldToken,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.Release{Session: p.session, Name: p.semaphore, Epoch: p.epoch, Token: p.token}
	},
	answer: noContent,
}

var opResize = operation{
	name:   "resize",
	names:  fieldSession | fieldSemaphore,
	body:   fieldCount,
	needed: fieldCount,
	query:  fieldEpoch | fieldToken,
	lives:  true,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.ResizeLease{Session: p.session, Name: p.semaphore, Count: p.count, Epoch: p.epoch, Token: p.token}
	},
	answer: leaseAnswer,
}

var opRevoke = operation{
	name:  "revoke",
	names: fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldReason,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.RevokeLease{Session: p.session, Name: p.semaphore, Reason: p.reason, Epoch: p.epoch}
	},
	answer: noContent,
}

func leaseAnswer(_ *params, r *cluster.Reply) answer { return ok(newLeaseBody(r, 0)) }

func keepTTL(p *params) {
	if !p.given.has(fieldTTL) {
		p.ttlMS = fsm.KeepTTL
	}
}

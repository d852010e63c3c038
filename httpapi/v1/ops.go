package v1

import (
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// The operations, in the order of docs/api-many.md: first on semaphores.

var opPut = operation{
	name:  "put",
	names: fieldSemaphore,
	body:  fieldPermits | fieldLevel | fieldMetadata,
	query: fieldEpoch | fieldOnlyNew | fieldMatch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		c := settingsOf(p)
		c.OnlyNew = p.onlyNew
		return c
	},
	response: settingsResponse,
}

var opPatch = operation{
	name:  "patch",
	names: fieldSemaphore,
	body:  fieldPermits | fieldLevel | fieldMetadata,
	query: fieldEpoch | fieldMatch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		c := settingsOf(p)
		c.OnlyExisting = true
		return c
	},
	response: settingsResponse,
}

func settingsOf(p *params) fsm.PutSemaphore {
	return fsm.PutSemaphore{
		Name:     p.semaphore,
		Permits:  fsm.Change[int64]{Given: p.given.has(fieldPermits), Value: p.permits},
		Level:    fsm.Change[*int32]{Given: p.given.has(fieldLevel), Value: p.level},
		Metadata: fsm.Change[[]fsm.Pair]{Given: p.given.has(fieldMetadata), Value: p.metadata},
		Epoch:    p.epoch,
		Version:  versionOf(p),
	}
}

// versionOf returns the version of the settings that If-Match requires; its epoch is that
// of p.
func versionOf(p *params) fsm.Change[uint64] {
	return fsm.Change[uint64]{Given: p.given.has(fieldMatch), Value: p.match.Version}
}

func settingsResponse(_ *params, r *cluster.Reply) response {
	resp := ok(reads.NewSemaphoreBody(r.Semaphore))
	if r.Created {
		resp = created(resp.body, exchange.SemaphorePath(r.Semaphore.Name))
	}
	resp.etag = reads.ETagOf(r.Semaphore)
	return resp
}

var opCreate = operation{
	name:   "create",
	names:  fieldSemaphore,
	body:   fieldName | fieldPermits | fieldLevel | fieldMetadata,
	needed: fieldPermits,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.CreateSemaphore{Name: p.semaphore, Permits: p.permits, Level: p.level, Metadata: p.metadata}
	},
	response: func(p *params, r *cluster.Reply) response {
		resp := settingsResponse(p, r)
		resp.body = openedSemaphoreBody{reads.NewSemaphoreBody(r.Semaphore), r.Created}
		return resp
	},
}

var opDelete = operation{
	name:  "delete",
	names: fieldSemaphore,
	query: fieldEpoch | fieldMatch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.DeleteSemaphore{Name: p.semaphore, Epoch: p.epoch, Version: versionOf(p)}
	},
	response: noContent,
}

var opSet = operation{
	name:   "set",
	names:  fieldSemaphore,
	body:   fieldValue,
	needed: fieldValue,
	query:  fieldEpoch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.SetValue{Name: p.semaphore, Value: p.value, Epoch: p.epoch}
	},
	response: valueResponse,
}

var opUp = operation{
	name:     "up",
	names:    fieldSemaphore,
	body:     fieldCount,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Up{Name: p.semaphore, Count: p.count, Epoch: p.epoch}
	},
	response: valueResponse,
}

var opDown = operation{
	name:     "down",
	names:    fieldSemaphore,
	body:     fieldCount | fieldWait | fieldPartial,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, node exchange.Commands) fsm.Command {
		c := fsm.Down{Name: p.semaphore, Count: p.count, Partial: p.partial, Epoch: p.epoch, WaitMS: p.waitMS}
		if p.waitMS > 0 {
			c.Session = node.DrawSession()
		}
		return c
	},
	response: downResponse,
}

func valueResponse(_ *params, r *cluster.Reply) response { return ok(valueBody{r.Value}) }

// downResponse is the reply to a down, also to a partial one that got no permit.
func downResponse(_ *params, r *cluster.Reply) response {
	value := r.Value
	if r.Code == fsm.Unavailable {
		value = r.Available
	}
	return ok(downBody{Granted: r.Granted, Value: value})
}

// The operations on leases and wait lists.

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
	command: func(p *params, node exchange.Commands) fsm.Command {
		return fsm.AcquireOnce{Name: p.semaphore, Count: p.count, TTLMS: p.ttlMS, Metadata: p.metadata,
			Epoch: p.epoch, WaitMS: p.waitMS, Session: node.DrawSession()}
	},
	response: func(_ *params, r *cluster.Reply) response {
		return created(newLeaseBody(r, 0), exchange.SessionPath(r.Session))
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
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Acquire{Session: p.session, Name: p.semaphore, Count: p.count, TTLMS: p.ttlMS, Try: p.try, Epoch: p.epoch}
	},
	response: leaseResponse,
}

var opAcquireMany = operation{
	name:   "acquire-many",
	names:  fieldSession,
	body:   fieldSemaphores | fieldMode | fieldWait,
	needed: fieldSemaphores | fieldMode,
	query:  fieldTry,
	lives:  true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.AcquireMany{Session: p.session, Wants: p.wants, Mode: p.mode, Try: p.try}
	},
	response: func(_ *params, r *cluster.Reply) response { return ok(newLeasesBody(r)) },
}

var opRelease = operation{
	name:  "release",
	names: fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldToken,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Release{Session: p.session, Name: p.semaphore, Epoch: p.epoch, Token: p.token}
	},
	response: noContent,
}

var opResize = operation{
	name:   "resize",
	names:  fieldSession | fieldSemaphore,
	body:   fieldCount,
	needed: fieldCount,
	query:  fieldEpoch | fieldToken,
	lives:  true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ResizeLease{Session: p.session, Name: p.semaphore, Count: p.count, Epoch: p.epoch, Token: p.token}
	},
	response: leaseResponse,
}

var opRevoke = operation{
	name:  "revoke",
	names: fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldReason,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.RevokeLease{Session: p.session, Name: p.semaphore, Reason: p.reason, Epoch: p.epoch}
	},
	response: noContent,
}

var opListAdd = operation{
	name:     "list-add",
	names:    fieldSession | fieldSemaphore,
	body:     fieldCount,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ListAdd{Session: p.session, Name: p.semaphore, Count: p.count, Epoch: p.epoch}
	},
	response: func(p *params, r *cluster.Reply) response {
		return ok(listedBody{Session: exchange.FormatSession(r.Session), Name: p.semaphore, Epoch: r.Epoch,
			Wanted: r.Asked, Granted: r.Granted, Position: r.Position})
	},
}

var opListRemove = operation{
	name:  "list-remove",
	names: fieldSession | fieldSemaphore,
	query: fieldEpoch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ListRemove{Session: p.session, Name: p.semaphore, Epoch: p.epoch}
	},
	response: noContent,
}

var opListDeliver = operation{
	name:  "list-deliver",
	names: fieldSession,
	body:  fieldWait,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ListDeliver{Session: p.session}
	},
	response: func(_ *params, r *cluster.Reply) response { return ok(newDeliveryBody(r)) },
}

// The operations on sessions.

var opOpen = operation{
	name:   "open",
	body:   fieldTTL | fieldMetadata | fieldOnEnd | fieldTerms,
	needed: fieldTTL,
	lives:  true,
	command: func(p *params, node exchange.Commands) fsm.Command {
		if p.given&fieldTerms != 0 {
			return fsm.OpenHolder{Session: node.DrawSession(), TTLMS: p.ttlMS, About: p.about, DeleteItems: p.deleteItems, DelayMS: p.itemDelayMS}
		}
		return fsm.OpenSession{Session: node.DrawSession(), TTLMS: p.ttlMS, Metadata: p.metadata, Keep: p.keep}
	},
	response: func(p *params, r *cluster.Reply) response {
		body := reads.NewSessionBody(newLifeBody(r), p.metadata)
		if p.given&fieldTerms != 0 {
			body.SetTerms(fsm.HolderView{About: p.about, DeleteItems: p.deleteItems, DelayMS: p.itemDelayMS})
		}
		return created(body, exchange.SessionPath(r.Session))
	},
}

var opRenew = operation{
	name:     "renew",
	names:    fieldSession,
	body:     fieldTTL,
	query:    fieldShowLeases,
	defaults: keepTTL,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Renew{Renewals: []fsm.Renewal{{Session: p.session, TTLMS: p.ttlMS}}}
	},
	response: func(_ *params, r *cluster.Reply) response { return ok(newLifeBody(r)) },
}

var opEnd = operation{
	name:  "end",
	names: fieldSession,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.EndSession{Session: p.session}
	},
	response: noContent,
}

// opRevokeSession is an operator's end of a session.
var opRevokeSession = operation{
	name:  "revoke-session",
	names: fieldSession,
	body:  fieldReason,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.EndSession{Session: p.session, Operator: true, Reason: p.reason}
	},
	response: noContent,
}

var opRestore = operation{
	name:   "restore",
	names:  fieldSession,
	body:   fieldTTL | fieldLeases | fieldMetadata,
	needed: fieldTTL | fieldLeases,
	lives:  true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.RestoreSession{Session: p.session, TTLMS: p.ttlMS, Leases: p.wants, Metadata: p.metadata}
	},
	response: func(_ *params, r *cluster.Reply) response { return ok(newRestoredBody(r)) },
}

func countOfOne(p *params) {
	if !p.given.has(fieldCount) {
		p.count = 1
	}
}

func leaseResponse(_ *params, r *cluster.Reply) response { return ok(newLeaseBody(r, 0)) }

func keepTTL(p *params) {
	if !p.given.has(fieldTTL) {
		p.ttlMS = fsm.KeepTTL
	}
}

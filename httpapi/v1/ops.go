package v1

import (
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// The operations, in the order of docs/api-many.md: first on semaphores.

var opPut = operation{
	name:  "put",
	path:  fieldSemaphore,
	body:  fieldPermits | fieldLevel | fieldMetadata | fieldSettings,
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
	path:  fieldSemaphore,
	body:  fieldPermits | fieldLevel | fieldMetadata | fieldSettings,
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
		Permits:  fsm.Change[int64]{Given: p.present.has(fieldPermits), Value: p.permits},
		Level:    fsm.Change[*int32]{Given: p.present.has(fieldLevel), Value: p.level},
		Metadata: fsm.Change[[]fsm.Pair]{Given: p.present.has(fieldMetadata), Value: p.metadata},
		Epoch:    p.epoch,
		Version:  versionOf(p),
		Settings: settingsChange(p),
	}
}

// settingsChange returns the settings of a body, including the head start, which is a separate parameter because
// requests have one too.
func settingsChange(p *params) fsm.SettingsChange {
	change := p.settings
	change.HeadStartMS = fsm.Change[int64]{Given: p.present.has(fieldHeadStart), Value: max(0, p.headStartMS)}
	return change
}

// versionOf returns the version of the settings that If-Match requires. (p.epoch has the epoch that it requires.)
func versionOf(p *params) fsm.Change[uint64] {
	return fsm.Change[uint64]{Given: p.present.has(fieldMatch), Value: p.match.Version}
}

func settingsResponse(_ *params, r *calls.Reply) response {
	resp := ok(reads.NewSemaphoreBody(r.Semaphore, r.NowMS))
	if r.Created {
		resp = created(resp.body, exchange.SemaphorePath(r.Semaphore.Name))
	}
	resp.etag = reads.ETagOf(r.Semaphore)
	return resp
}

var opCreate = operation{
	name:     "create",
	path:     fieldSemaphore,
	body:     fieldName | fieldPermits | fieldLevel | fieldMetadata | fieldSettings,
	required: fieldPermits,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.CreateSemaphore{Name: p.semaphore, Permits: p.permits, Level: p.level, Metadata: p.metadata, Settings: settingsChange(p)}
	},
	response: func(p *params, r *calls.Reply) response {
		resp := settingsResponse(p, r)
		resp.body = openedSemaphoreBody{reads.NewSemaphoreBody(r.Semaphore, r.NowMS), r.Created}
		return resp
	},
}

var opDelete = operation{
	name:  "delete",
	path:  fieldSemaphore,
	query: fieldEpoch | fieldMatch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.DeleteSemaphore{Name: p.semaphore, Epoch: p.epoch, Version: versionOf(p)}
	},
	response: noContent,
}

var opSet = operation{
	name:     "set",
	path:     fieldSemaphore,
	body:     fieldValue,
	required: fieldValue,
	query:    fieldEpoch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.SetValue{Name: p.semaphore, Value: p.value, Epoch: p.epoch}
	},
	response: valueResponse,
}

var opUp = operation{
	name:     "up",
	path:     fieldSemaphore,
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
	path:     fieldSemaphore,
	body:     fieldCount | fieldWait | fieldPartial | fieldGroup | fieldHeadStart,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, node exchange.Commands) fsm.Command {
		c := fsm.Down{Name: p.semaphore, Count: p.count, Partial: p.partial, Epoch: p.epoch, WaitMS: p.waitMS,
			Group: p.group, HeadStartMS: p.headStartMS}
		if p.waitMS > 0 {
			c.Session = node.DrawSession()
		}
		return c
	},
	response: downResponse,
}

var opGroupPut = operation{
	name:     "group-put",
	path:     fieldSemaphore | fieldGroup,
	body:     fieldLimit,
	required: fieldLimit,
	query:    fieldEpoch,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.GroupPut{Name: p.semaphore, Group: p.group, Limit: p.limit, Epoch: p.epoch}
	},
	response: func(p *params, r *calls.Reply) response {
		return ok(ownLimitBody{Semaphore: p.semaphore, Epoch: r.Epoch, Group: p.group, Limit: exchange.LimitOf(p.limit)})
	},
}

var opFreeLost = operation{
	name:  "free-lost",
	path:  fieldSemaphore | fieldToken,
	query: fieldEpoch | fieldReason,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.FreeLost{Name: p.semaphore, Token: p.token, Reason: p.reason, Epoch: p.epoch}
	},
	response: noContent,
}

// opRaiseTokens is for an operator who moves a name here from another cluster.
var opRaiseTokens = operation{
	name:     "raise-tokens",
	body:     fieldAbove,
	required: fieldAbove,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.RaiseTokens{Above: uint64(p.above)}
	},
	response: func(_ *params, r *calls.Reply) response { return ok(tokensBody{r.Value}) },
}

func valueResponse(_ *params, r *calls.Reply) response { return ok(valueBody{r.Value}) }

// downResponse is the reply to a down, including a partial down that got no permits.
func downResponse(_ *params, r *calls.Reply) response {
	value := r.Value
	if r.Code == fsm.Unavailable {
		value = r.Why().Available
	}
	return ok(downBody{Granted: r.Granted, Value: value})
}

// The operations on leases and wait lists.

// defaultTTLMS is the default ttl of a one-call acquire.
const defaultTTLMS = 30_000

var opAcquireOnce = operation{
	name:  "acquire-once",
	path:  fieldSemaphore,
	body:  fieldCount | fieldTTL | fieldWait | fieldMetadata | fieldGroup | fieldHeadStart,
	query: fieldEpoch,
	defaults: func(p *params) {
		countOfOne(p)
		if !p.present.has(fieldTTL) {
			p.ttlMS = defaultTTLMS
		}
	},
	expires: true,
	command: func(p *params, node exchange.Commands) fsm.Command {
		return fsm.AcquireOnce{Name: p.semaphore, Count: p.count, TTLMS: p.ttlMS, Metadata: p.metadata,
			Epoch: p.epoch, WaitMS: p.waitMS, Session: node.DrawSession(), Group: p.group, HeadStartMS: p.headStartMS}
	},
	response: func(_ *params, r *calls.Reply) response {
		return created(newLeaseBody(r, 0), exchange.SessionPath(r.Session))
	},
}

var opAcquire = operation{
	name:  "acquire",
	path:  fieldSession | fieldSemaphore,
	body:  fieldCount | fieldTTL | fieldWait | fieldGroup | fieldHeadStart,
	query: fieldEpoch | fieldTry,
	defaults: func(p *params) {
		countOfOne(p)
		keepTTL(p)
	},
	expires: true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Acquire{Session: p.session, Name: p.semaphore, Count: p.count, TTLMS: p.ttlMS, Try: p.try, Epoch: p.epoch,
			Group: p.group, HeadStartMS: p.headStartMS}
	},
	response: leaseResponse,
}

var opAcquireMany = operation{
	name:     "acquire-many",
	path:     fieldSession,
	body:     fieldSemaphores | fieldMode | fieldWait | fieldHeadStart,
	required: fieldSemaphores | fieldMode,
	query:    fieldTry,
	expires:  true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.AcquireMany{Session: p.session, Wants: p.wants, Mode: p.mode, Try: p.try, HeadStartMS: p.headStartMS}
	},
	response: func(_ *params, r *calls.Reply) response { return ok(newLeasesBody(r)) },
}

var opRelease = operation{
	name:  "release",
	path:  fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldToken | fieldGroup,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Release{Session: p.session, Name: p.semaphore, Epoch: p.epoch, Token: p.token, Group: p.group}
	},
	response: noContent,
}

var opResize = operation{
	name:     "resize",
	path:     fieldSession | fieldSemaphore,
	body:     fieldCount,
	required: fieldCount,
	query:    fieldEpoch | fieldToken | fieldGroup,
	expires:  true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ResizeLease{Session: p.session, Name: p.semaphore, Count: p.count, Epoch: p.epoch, Token: p.token, Group: p.group}
	},
	response: resizedResponse,
}

var opRevoke = operation{
	name:  "revoke",
	path:  fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldReason | fieldGroup,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.RevokeLease{Session: p.session, Name: p.semaphore, Reason: p.reason, Epoch: p.epoch, Group: p.group}
	},
	response: noContent,
}

var opListAdd = operation{
	name:     "list-add",
	path:     fieldSession | fieldSemaphore,
	body:     fieldCount | fieldGroup,
	query:    fieldEpoch,
	defaults: countOfOne,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ListAdd{Session: p.session, Name: p.semaphore, Count: p.count, Epoch: p.epoch, Group: p.group}
	},
	response: func(p *params, r *calls.Reply) response {
		return ok(listedBody{Session: exchange.FormatSession(r.Session), Name: p.semaphore, Group: p.group, Epoch: r.Epoch,
			Wanted: r.Asked, Granted: r.Granted, Position: r.Position})
	},
}

var opListRemove = operation{
	name:  "list-remove",
	path:  fieldSession | fieldSemaphore,
	query: fieldEpoch | fieldGroup,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ListRemove{Session: p.session, Name: p.semaphore, Epoch: p.epoch, Group: p.group}
	},
	response: noContent,
}

var opListDeliver = operation{
	name: "list-deliver",
	path: fieldSession,
	body: fieldWait,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ListDeliver{Session: p.session}
	},
	response: func(_ *params, r *calls.Reply) response { return ok(newDeliveryBody(r)) },
}

// The operations on sessions.

var opOpen = operation{
	name:     "open",
	body:     fieldTTL | fieldMetadata | fieldOnEnd | fieldTerms,
	required: fieldTTL,
	expires:  true,
	command: func(p *params, node exchange.Commands) fsm.Command {
		if p.present&fieldTerms != 0 {
			return fsm.OpenHolder{Session: node.DrawSession(), TTLMS: p.ttlMS, About: p.about, DeleteItems: p.deleteItems, DelayMS: p.itemDelayMS}
		}
		return fsm.OpenSession{Session: node.DrawSession(), TTLMS: p.ttlMS, Metadata: p.metadata, Keep: p.keep}
	},
	response: func(p *params, r *calls.Reply) response {
		body := reads.NewSessionBody(newLifeBody(r), p.metadata)
		if p.present&fieldTerms != 0 {
			body.SetTerms(fsm.HolderView{About: p.about, DeleteItems: p.deleteItems, DelayMS: p.itemDelayMS})
		}
		return created(body, exchange.SessionPath(r.Session))
	},
}

var opRenew = operation{
	name:     "renew",
	path:     fieldSession,
	body:     fieldTTL,
	query:    fieldShowLeases,
	defaults: keepTTL,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.Renew{Renewals: []fsm.Renewal{{Session: p.session, TTLMS: p.ttlMS}}}
	},
	response: func(_ *params, r *calls.Reply) response { return ok(newLifeBody(r)) },
}

var opEnd = operation{
	name: "end",
	path: fieldSession,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.EndSession{Session: p.session}
	},
	response: noContent,
}

// opRevokeSession ends a session for an operator.
var opRevokeSession = operation{
	name: "revoke-session",
	path: fieldSession,
	body: fieldReason,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.EndSession{Session: p.session, Operator: true, Reason: p.reason}
	},
	response: noContent,
}

var opRestore = operation{
	name:     "restore",
	path:     fieldSession,
	body:     fieldTTL | fieldLeases | fieldMetadata,
	required: fieldTTL | fieldLeases,
	expires:  true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.RestoreSession{Session: p.session, TTLMS: p.ttlMS, Leases: p.wants, Metadata: p.metadata, Slots: p.slots}
	},
	response: func(_ *params, r *calls.Reply) response { return ok(newRestoredBody(r)) },
}

func countOfOne(p *params) {
	if !p.present.has(fieldCount) {
		p.count = 1
	}
}

func leaseResponse(_ *params, r *calls.Reply) response { return ok(newLeaseBody(r, 0)) }

// resizedResponse reports whether the receipt was settled.
func resizedResponse(_ *params, r *calls.Reply) response {
	body := newLeaseBody(r, 0)
	if body.Spent {
		body.Settled = &r.Found
	}
	return ok(body)
}

func keepTTL(p *params) {
	if !p.present.has(fieldTTL) {
		p.ttlMS = fsm.KeepTTL
	}
}

// The JSON of replies to operations.

type leasesBody struct {
	Session string            `json:"session"`
	Leases  []reads.LeaseBody `json:"leases"`
}

type openedSemaphoreBody struct {
	reads.SemaphoreBody
	Created bool `json:"created"`
}

type valueBody struct {
	Value int64 `json:"value"`
}

type downBody struct {
	Granted int64 `json:"granted"`
	Value   int64 `json:"value"`
}

type tokensBody struct {
	Highest int64 `json:"highest_token"`
}

// ownLimitBody has the limit that was set for a group alone, or null.
type ownLimitBody struct {
	Semaphore string `json:"semaphore"`
	Epoch     uint64 `json:"epoch"`
	Group     string `json:"group"`
	Limit     *int64 `json:"limit"`
}

type restoredBody struct {
	reads.LifeBody
	Created bool              `json:"created"`
	Leases  []reads.LeaseBody `json:"leases"`
}

// listedBody is the reply that shows an entry of a wait list.
type listedBody struct {
	Session  string `json:"session"`
	Name     string `json:"name"`
	Group    string `json:"group,omitempty"`
	Epoch    uint64 `json:"epoch"`
	Wanted   int64  `json:"wanted"`   // permits that the entry waits for
	Granted  int64  `json:"granted"`  // granted permits that are not delivered yet
	Position int64  `json:"position"` // place of its waiting request in the line, or 0
}

type deliveryBody struct {
	Count     int              `json:"count"`
	Completed []completionBody `json:"completed"`
}

type completionBody struct {
	Name       string `json:"name"`
	Group      string `json:"group,omitempty"`
	Epoch      uint64 `json:"epoch"`
	Granted    int64  `json:"granted"`
	Deleted    bool   `json:"deleted"`
	Superseded bool   `json:"superseded,omitempty"`
	Token      uint64 `json:"token"`
}

func newLeaseBody(r *calls.Reply, i int) reads.LeaseBody {
	g := r.Grants[i]
	return reads.LeaseBody{Session: exchange.FormatSession(r.Session), Semaphore: g.Semaphore, Group: g.DetailsOrZero().Group, Count: g.Count, Token: g.Token,
		ExpiresInMS: reads.Left(reads.EndOf(r.DeadlineMS, g.DetailsOrZero().EndsMS), r.NowMS), WaitedMS: r.WaitedMS, TimesBody: reads.NewTimesBody(&g, r.NowMS)}
}

func newLeasesBody(r *calls.Reply) leasesBody {
	body := leasesBody{Session: exchange.FormatSession(r.Session), Leases: make([]reads.LeaseBody, len(r.Grants))}
	for i := range r.Grants {
		body.Leases[i] = newLeaseBody(r, i)
	}
	return body
}

// stillWaiting shows a waiting request. If the request is for several semaphores, its position is given for the line of
// the first.
func stillWaiting(p *params, r *calls.Reply) reads.WaitingBody {
	body := reads.WaitingBody{Session: exchange.FormatSession(r.Session), Position: r.Position, WaitingMS: r.WaitingMS}
	if p.mode == 0 {
		body.Semaphore, body.Count, body.Group = r.Subject, r.Asked, r.Why().Group
	} else {
		body.Mode = exchange.ModeName(p.mode)
		body.List(p.wants)
	}
	return body
}

func newLifeBody(r *calls.Reply) reads.LifeBody {
	return reads.LifeBody{Session: exchange.FormatSession(r.Session), TTLMS: r.TTLMS, ExpiresInMS: reads.Left(r.DeadlineMS, r.NowMS), OneShot: r.OneShot}
}

func newRestoredBody(r *calls.Reply) restoredBody {
	return restoredBody{LifeBody: newLifeBody(r), Created: r.Created, Leases: newLeasesBody(r).Leases}
}

func newDeliveryBody(r *calls.Reply) deliveryBody {
	body := deliveryBody{Count: len(r.Completed), Completed: make([]completionBody, len(r.Completed))}
	for i, c := range r.Completed {
		body.Completed[i] = completionBody{Name: c.Semaphore, Group: c.Group, Epoch: c.Epoch, Granted: c.Granted, Deleted: c.Deleted, Superseded: c.Superseded(), Token: c.Token}
	}
	return body
}

package v1

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// operation is one command that a client may give: a row of the table that the single
// routes and the batch share, so that both read and reply alike.
type operation struct {
	name     string // in a batch
	names    fields // of its semaphore or session: needed, from the path or in a batch
	body     fields // other members of its body
	needed   fields // those without a default
	lives    bool   // its reply is a session or leases, which have an end
	large    bool   // its body may have itemBodyBytes, and counts as one that is received until it is done
	query    fields // of its query on a single route, of its body in a batch
	defaults func(p *params)
	command  func(p *params, node exchange.Commands) fsm.Command
	response func(p *params, r *cluster.Reply) response
}

// response is the reply to one operation.
type response struct {
	status   int
	body     any    // nil: none
	location string // of what was created
	etag     string // of a semaphore's settings
	replayed bool
}

// batchFields returns the members that an operation takes in a batch: it has no path
// and no query there, and does not wait.
func (op *operation) batchFields() fields {
	all := op.names | op.body | op.query | fieldOp | fieldKey
	return all &^ (fieldWait | fieldName | fieldShowLeases)
}

// batchNeeds returns the members that an operation needs in a batch.
func (op *operation) batchNeeds() fields { return op.needed | op.names }

// complete checks that the needed fields are given and that the others go together, and
// sets the defaults.
func (op *operation) complete(p *params, needed fields) error {
	if name := firstName(needed &^ p.given); name != "" {
		return exchange.Invalid(name, "This is needed.")
	}
	if p.try && p.waitMS > 0 {
		return exchange.Invalid("try", "A try never waits: give try or wait, not both.")
	}
	if op.lives && p.given.has(fieldTTL) && p.ttlMS == 0 {
		return exchange.Invalid("ttl", "A ttl is at least 1 ms here: with 0 it would end at once. A renewal with a ttl of 0 ends a session.")
	}
	if p.given.has(fieldMatch) {
		if p.given.has(fieldEpoch) {
			return exchange.Invalid("epoch", "If-Match names an epoch already: leave epoch out.")
		}
		p.epoch = p.match.Epoch
	}
	if op.defaults != nil {
		op.defaults(p)
	}
	switch {
	case op.body.has(fieldBytes):
		return checkBytes(p)
	case op.body.has(fieldTerms):
		return checkTerms(p)
	case op.body.has(fieldValue):
		return checkNumber(p)
	}
	return nil
}

func (op *operation) call(p *params, node exchange.Commands) cluster.Call {
	return cluster.Call{
		Command: op.command(p, node),
		Key:     p.key,
		Wait:    time.Duration(p.waitMS) * time.Millisecond,
	}
}

// operations is the table, in the order of docs/api-many.md.
var operations = []*operation{
	&opPut, &opPatch, &opCreate, &opDelete, &opSet, &opUp, &opDown,
	&opAcquireOnce, &opAcquire, &opAcquireMany, &opRelease, &opResize, &opRevoke,
	&opOpen, &opRenew, &opEnd, &opRevokeSession, &opRestore,
	&opListAdd, &opListRemove, &opListDeliver,
	&opItemPut, &opItemAcquire, &opItemRelease, &opItemDelete,
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

// perform returns the handler of a route that is one operation.
func (api *API) perform(op *operation) echo.HandlerFunc {
	return func(c echo.Context) error {
		_, _, resp, err := api.do(c, op)
		if err != nil {
			return err
		}
		return api.render(c, resp)
	}
}

// do reads an operation's parameters, performs it, and returns its reply.
func (api *API) do(c echo.Context, op *operation) (*params, *cluster.Reply, response, error) {
	p, op, err := api.readParams(c, op)
	if err != nil {
		return nil, nil, response{}, err
	}
	reply, err := api.x.Node.Do(c.Request().Context(), op.call(p, api.x.Node))
	if err != nil {
		return nil, nil, response{}, err
	}
	api.x.SetIndex(c, reply.Index)
	return p, reply, api.conclude(op, p, reply), nil
}

// readParams reads an operation's parameters from path, query, headers and body. It returns
// the operation that the body asks for, where the route is several.
func (api *API) readParams(c echo.Context, op *operation) (*params, *operation, error) {
	p := &params{maxWaitMS: api.x.Config.MaxWait.Milliseconds()}
	if err := p.readPath(c, op.names); err != nil {
		return nil, nil, err
	}
	if err := p.readQuery(c, op); err != nil {
		return nil, nil, err
	}
	if err := p.readHeader(c.Request().Header, op); err != nil {
		return nil, nil, err
	}
	if err := api.readBody(c, p, op); err != nil {
		return nil, nil, err
	}
	if op == &opItem {
		one, err := itemOperation(p)
		if err != nil {
			return nil, nil, err
		}
		op = one
	}
	return p, op, op.complete(p, op.needed|op.body&fieldName)
}

// readBody reads the members of an operation's body.
func (api *API) readBody(c echo.Context, p *params, op *operation) error {
	limit := api.x.Config.BodyBytes
	if op.large {
		limit = max(limit, itemBodyBytes)
	}
	body, err := api.x.ReadBody(c, limit)
	if err != nil {
		return err
	}
	queryWait := p.given & fieldWait
	p.given &^= fieldWait
	if err := p.read(body, op.body); err != nil {
		return err
	}
	if p.given&queryWait != 0 {
		return exchange.Invalid("wait", "Give wait in the query or in the body, not in both.")
	}
	p.given |= queryWait
	if !op.large {
		api.x.DoneWithBody(c) // the operation may wait for long
	}
	return nil
}

// conclude turns a result into a reply: the operation's own, that it still waits, or
// the refusal.
func (api *API) conclude(op *operation, p *params, r *cluster.Reply) response {
	if len(r.Each) == 1 { // a renewal: its own result
		replayed := r.Replayed
		r.Result = r.Each[0]
		r.Replayed = replayed
	}
	var resp response
	switch {
	case r.Code == fsm.OK && r.Replayed && op.lives && r.DeadlineMS == 0:
		resp = refusedResponse(exchange.OverSince(&r.Result))
	case r.Code == fsm.OK, r.Code == fsm.NothingReady:
		resp = op.response(p, r)
	case r.Code == fsm.Waiting:
		resp = response{status: http.StatusAccepted, body: stillWaiting(p, r)}
	case r.Code == fsm.Unavailable && p.partial:
		resp = downResponse(p, r)
	case r.Code == fsm.UnknownSemaphore && p.given.has(fieldMatch) && op.query.has(fieldOnlyNew):
		resp = refusedResponse(noneToMatch(r)) // without If-Match it would have made one (RFC 9110, 13.2.1)
	case r.Code == fsm.LimitReached:
		resp = refusedResponse(api.limitReached(&r.Result))
	default:
		resp = refusedResponse(exchange.Refused(&r.Result))
	}
	if refusal, is := resp.body.(*exchange.Problem); is {
		refusal.Item = p.item
	}
	resp.replayed = r.Replayed
	return resp
}

// noneToMatch is the refusal of a PUT whose If-Match names the settings of a semaphore that
// does not exist.
func noneToMatch(r *cluster.Reply) *exchange.Problem {
	refusal := exchange.NewProblem("precondition-failed", "No semaphore has this name, and so none has the settings that the request names: it was deleted, or never created.")
	refusal.Semaphore = r.Subject
	return refusal
}

// limitReached is the refusal by a limit, which it names.
func (api *API) limitReached(r *fsm.Result) *exchange.Problem {
	refusal := exchange.Refused(r)
	if limit, known := limits[r.Rule]; known {
		var of fsm.Limits
		api.x.Node.View(func(m *fsm.Machine) { of = m.Limits() })
		most := limit.value(&of)
		refusal.Limit = &most
		refusal.Detail = fmt.Sprintf("The limit of %d %s (--%s) is reached. Nothing was changed.", most, limit.what, limit.flag)
	}
	return refusal
}

func refusedResponse(p *exchange.Problem) response { return response{status: p.Status, body: p} }

func ok(body any) response { return response{status: http.StatusOK, body: body} }

func created(body any, location string) response {
	return response{status: http.StatusCreated, body: body, location: location}
}

func noContent(*params, *cluster.Reply) response { return response{status: http.StatusNoContent} }

// render sends a reply.
func (api *API) render(c echo.Context, resp response) error {
	header := c.Response().Header()
	if resp.replayed {
		header.Set("Idempotency-Replayed", "true")
	}
	if refusal, isRefusal := resp.body.(*exchange.Problem); isRefusal {
		return refusal
	}
	if resp.location != "" {
		header.Set("Location", resp.location)
	}
	if resp.etag != "" {
		header.Set("ETag", resp.etag)
	}
	if resp.body == nil {
		return c.NoContent(resp.status)
	}
	return api.x.SendJSON(c, resp.status, resp.body)
}

// renewedBody is the reply to a renewal; with ?leases=true it has the session's leases.
type renewedBody struct {
	reads.LifeBody
	Leases *[]reads.HeldBody `json:"leases,omitempty"`
}

// renewSession renews a session and, if asked to, shows its leases: the client learns
// in the same request that an operator revoked one or that a semaphore was deleted.
func (api *API) renewSession(c echo.Context) error {
	p, reply, resp, err := api.do(c, &opRenew)
	if err != nil {
		return err
	}
	if life, is := resp.body.(reads.LifeBody); is && p.leases && resp.status == http.StatusOK {
		leases, bytes := api.reads.LeasesAt(c, reply)
		defer api.x.ReleaseReply(bytes)
		resp.body = renewedBody{life, leases}
	}
	return api.render(c, resp)
}

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

type restoredBody struct {
	reads.LifeBody
	Created bool              `json:"created"`
	Leases  []reads.LeaseBody `json:"leases"`
}

// listedBody is an entry of a wait list: the reply to adding it.
type listedBody struct {
	Session  string `json:"session"`
	Name     string `json:"name"`
	Epoch    uint64 `json:"epoch"`
	Wanted   int64  `json:"wanted"`   // permits that the entry waits for
	Granted  int64  `json:"granted"`  // permits that it has got, not delivered yet
	Position int64  `json:"position"` // of the waiting request, or 0
}

// deliveryBody has the completed entries of a wait list.
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

func newLeaseBody(r *cluster.Reply, i int) reads.LeaseBody {
	g := r.Grants[i]
	return reads.LeaseBody{Session: exchange.FormatSession(r.Session), Semaphore: g.Semaphore, Count: g.Count, Token: g.Token,
		ExpiresInMS: max(0, r.DeadlineMS-r.NowMS), WaitedMS: r.WaitedMS}
}

func newLeasesBody(r *cluster.Reply) leasesBody {
	body := leasesBody{Session: exchange.FormatSession(r.Session), Leases: make([]reads.LeaseBody, len(r.Grants))}
	for i := range r.Grants {
		body.Leases[i] = newLeaseBody(r, i)
	}
	return body
}

// stillWaiting shows a request's position; a request for several semaphores has that of
// its first line.
func stillWaiting(p *params, r *cluster.Reply) reads.WaitingBody {
	body := reads.WaitingBody{Session: exchange.FormatSession(r.Session), Position: r.Position, WaitingMS: r.WaitingMS}
	if p.mode == 0 {
		body.Semaphore, body.Count = r.Subject, r.Asked
	} else {
		body.Semaphores, body.Mode = p.wants, exchange.ModeName(p.mode)
	}
	return body
}

func newLifeBody(r *cluster.Reply) reads.LifeBody {
	return reads.LifeBody{Session: exchange.FormatSession(r.Session), TTLMS: r.TTLMS, ExpiresInMS: reads.Left(r.DeadlineMS, r.NowMS), OneShot: r.OneShot}
}

func newRestoredBody(r *cluster.Reply) restoredBody {
	return restoredBody{LifeBody: newLifeBody(r), Created: r.Created, Leases: newLeasesBody(r).Leases}
}

func newDeliveryBody(r *cluster.Reply) deliveryBody {
	body := deliveryBody{Count: len(r.Completed), Completed: make([]completionBody, len(r.Completed))}
	for i, c := range r.Completed {
		body.Completed[i] = completionBody{Name: c.Semaphore, Epoch: c.Epoch, Granted: c.Granted, Deleted: c.Deleted, Token: c.Token}
	}
	return body
}

const noneMatchForm = "Only If-None-Match: * with PUT /v1/semaphores/{name} has a meaning here."

// refuseConditions refuses headers that a route can't heed, rather than ignore them: a
// condition, or a key where repeats are not recognised. A read with a key passes, since
// it may always be repeated.
func refuseConditions(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, path := c.Request(), c.Path()
		changes := r.Method != http.MethodGet && r.Method != http.MethodHead
		if _, given := r.Header["If-Match"]; given && (!changes || path != "/v1/semaphores/:name") {
			return exchange.Invalid("If-Match", "If-Match has a meaning with PUT, PATCH and DELETE /v1/semaphores/{name} alone. Other routes take ?epoch=.")
		}
		if _, given := r.Header["If-None-Match"]; given && (r.Method != http.MethodPut || path != "/v1/semaphores/:name") {
			return exchange.Invalid("If-None-Match", noneMatchForm)
		}
		if _, given := r.Header["Idempotency-Key"]; given && changes && (strings.HasPrefix(path, "/v1/cluster") || path == "/v1/snapshot") {
			return exchange.Invalid("Idempotency-Key", "Changes of the cluster take no key: look at GET /v1/cluster before you repeat one.")
		}
		return next(c)
	}
}

package v1

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// operation describes one command of clients. A single route and the batch share it, so that both read the same
// parameters and send the same replies.
type operation struct {
	name     string // its name in a batch
	path     fields // parameters of the path; in a batch required members
	query    fields // parameters of the query, and If-Match; in a batch members
	body     fields // members of the body
	required fields // members without a default
	expires  bool   // the reply has a session or leases, which may have ended before a repeat
	large    bool   // the body may have itemBodyBytes, and uses the memory budget until the operation is done
	defaults func(p *params)
	command  func(p *params, node exchange.Commands) fsm.Command
	response func(p *params, r *calls.Reply) response
}

// response is the reply to one operation.
type response struct {
	status   int
	body     any    // nil: no body
	location string // path of the created session, semaphore or item
	etag     string // version of a semaphore's settings
	replayed bool
}

func refusedResponse(p *exchange.Problem) response { return response{status: p.Status, body: p} }

func ok(body any) response { return response{status: http.StatusOK, body: body} }

func created(body any, location string) response {
	return response{status: http.StatusCreated, body: body, location: location}
}

func noContent(*params, *calls.Reply) response { return response{status: http.StatusNoContent} }

// batchFields returns the members that an operation takes in a batch. There the parameters of path and query are
// members, and wait is not allowed.
func (op *operation) batchFields() fields {
	all := op.path | op.body | op.query | fieldOp | fieldKey
	return all &^ (fieldWait | fieldName | fieldShowLeases)
}

func (op *operation) batchRequired() fields { return op.required | op.path }

// operations is the table of operations, in the order of docs/api-many.md.
var operations = []*operation{
	&opPut, &opPatch, &opCreate, &opDelete, &opSet, &opUp, &opDown, &opGroupPut, &opFreeLost,
	&opAcquireOnce, &opAcquire, &opAcquireMany, &opRelease, &opResize, &opRevoke,
	&opOpen, &opRenew, &opEnd, &opRevokeSession, &opRestore,
	&opListAdd, &opListRemove, &opListDeliver,
	&opItemPut, &opItemAcquire, &opItemRelease, &opItemDelete, &opRaiseTokens,
}

// perform returns the handler of a route that performs one operation.
func (api *API) perform(op *operation) echo.HandlerFunc {
	return func(c echo.Context) error {
		_, _, resp, err := api.execute(c, op)
		if err != nil {
			return err
		}
		return api.render(c, resp)
	}
}

// execute reads an operation's parameters, performs it, and returns its reply.
func (api *API) execute(c echo.Context, op *operation) (*params, *calls.Reply, response, error) {
	p, op, err := api.readParams(c, op)
	if err != nil {
		return nil, nil, response{}, err
	}
	reply, err := api.x.Perform(c.Request().Context(), c, op.call(p, api.x.Node))
	if err != nil {
		return nil, nil, response{}, err
	}
	return p, reply, api.responseTo(op, p, reply), nil
}

// readParams reads an operation's parameters from path, query, headers and body. It also returns the operation,
// because the body of a request to opItem selects one of three.
func (api *API) readParams(c echo.Context, op *operation) (*params, *operation, error) {
	p := &params{maxWaitMS: api.x.Config.MaxWait.Milliseconds()}
	if err := p.readPath(c, op.path); err != nil {
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
		var err error
		if op, err = itemOperation(p); err != nil {
			return nil, nil, err
		}
	}
	return p, op, op.complete(p, op.required|op.body&fieldName)
}

func (api *API) readBody(c echo.Context, p *params, op *operation) error {
	limit := api.x.Config.BodyBytes
	if op.large {
		limit = max(limit, itemBodyBytes)
	}
	body, err := api.x.Bodies.ReadObject(c, limit)
	if err != nil {
		return err
	}
	inQuery := p.present & op.body & fieldEither
	p.present &^= inQuery
	if err := p.readMembers(body, op.body); err != nil {
		return err
	}
	if twice := firstName(p.present & inQuery); twice != "" {
		return exchange.Invalid(twice, "Give "+twice+" in the query or in the body, not in both.")
	}
	p.present |= inQuery
	if !op.large {
		api.x.Bodies.Release(c) // release the memory before the operation waits
	}
	return nil
}

// complete refuses parameters that are missing or contradict each other, and sets the defaults.
func (op *operation) complete(p *params, required fields) error {
	if name := firstName(required &^ p.present); name != "" {
		return exchange.Invalid(name, "This is needed.")
	}
	if p.try && p.waitMS > 0 {
		return exchange.Invalid("try", "A try never waits: give try or wait, not both.")
	}
	if op.expires && p.present.has(fieldTTL) && p.ttlMS == 0 {
		return exchange.Invalid("ttl", "A ttl is at least 1 ms here: with 0 it would end at once. A renewal with a ttl of 0 ends a session.")
	}
	if p.present.has(fieldMatch) {
		if p.present.has(fieldEpoch) {
			return exchange.Invalid("epoch", "If-Match names an epoch already: leave epoch out.")
		}
		p.epoch = p.match.Epoch
	}
	if op.defaults != nil {
		op.defaults(p)
	}
	if err := checkHeadStart(p, op.body.has(fieldSettings)); err != nil {
		return err
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

func (op *operation) call(p *params, node exchange.Commands) calls.Call {
	return calls.Call{
		Command: op.command(p, node),
		Key:     p.key,
		Wait:    time.Duration(p.waitMS) * time.Millisecond,
	}
}

// responseTo turns a result into a response: the reply of the operation, of a request that still waits, or a refusal.
func (api *API) responseTo(op *operation, p *params, r *calls.Reply) response {
	var resp response
	switch {
	case r.Code == fsm.OK && r.Replayed && op.expires && r.DeadlineMS == 0:
		resp = refusedResponse(exchange.OverSince(&r.Result))
	case r.Code == fsm.OK, r.Code == fsm.NothingReady:
		resp = op.response(p, r)
	case r.Code == fsm.Waiting:
		resp = response{status: http.StatusAccepted, body: stillWaiting(p, r)}
	case r.Code == fsm.Unavailable && p.partial:
		resp = downResponse(p, r)
	case r.Code == fsm.UnknownSemaphore && p.present.has(fieldMatch) && op.query.has(fieldOnlyNew):
		resp = refusedResponse(unknownToMatch(r)) // so If-Match does not match (RFC 9110, 13.2.1)
	case r.Code == fsm.LimitReached:
		resp = refusedResponse(api.limitReached(&r.Result))
	default:
		resp = refusedResponse(exchange.Refused(&r.Result))
	}
	if refusal, ok := resp.body.(*exchange.Problem); ok {
		refusal.Item = p.item
	}
	resp.replayed = r.Replayed
	return resp
}

// unknownToMatch refuses a PUT with If-Match if the semaphore does not exist.
func unknownToMatch(r *calls.Reply) *exchange.Problem {
	refusal := exchange.NewProblem("precondition-failed",
		"No semaphore has this name, so the settings that the request names don't exist: it was deleted, or never created.")
	refusal.Semaphore = r.Subject
	return refusal
}

func (api *API) render(c echo.Context, resp response) error {
	header := c.Response().Header()
	if refusal, ok := resp.body.(*exchange.Problem); ok {
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
	return api.x.Replies.SendJSON(c, resp.status, resp.body)
}

// renewedBody is the reply to a renewal; with ?leases=true it lists the session's leases.
type renewedBody struct {
	reads.LifeBody
	Leases *[]reads.HeldBody `json:"leases,omitempty"`
}

// renewSession renews a session. With ?leases=true the reply lists the session's leases, which tells the client about
// a revoked lease or a deleted semaphore without another request.
func (api *API) renewSession(c echo.Context) error {
	p, reply, resp, err := api.execute(c, &opRenew)
	if err != nil {
		return err
	}
	if life, ok := resp.body.(reads.LifeBody); ok && p.leases && resp.status == http.StatusOK {
		leases, bytes := api.reads.LeasesAt(c, reply)
		defer api.x.ReplyMemory.Release(bytes)
		resp.body = renewedBody{life, leases}
	}
	return api.render(c, resp)
}

// limitReached returns the refusal for a limit of the state machine, with the name of the flag that sets the limit.
func (api *API) limitReached(r *fsm.Result) *exchange.Problem {
	refusal := exchange.Refused(r)
	if row, known := configuredLimits[r.Rule]; known {
		var limits fsm.Limits
		api.x.Node.View(func(m *fsm.Machine) { limits = m.Limits() })
		value := row.value(&limits)
		refusal.Limit = &value
		refusal.Detail = fmt.Sprintf("The limit of %d %s (--%s) is reached. The request had no effect.", value, row.bounded, row.flag)
	}
	return refusal
}

// configuredLimit describes a configurable limit of the state machine: what it bounds, and its flag.
type configuredLimit struct {
	bounded, flag string
	value         func(l *fsm.Limits) int64
}

var configuredLimits = map[fsm.Rule]configuredLimit{
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

const noneMatchForm = "Only If-None-Match: * with PUT /v1/semaphores/{name} has a meaning here."

// refuseConditions refuses conditional headers on a route that does not support them.
func refuseConditions(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, path := c.Request(), c.Path()
		changes := r.Method != http.MethodGet && r.Method != http.MethodHead
		if _, present := r.Header["If-Match"]; present && (!changes || path != "/v1/semaphores/:name") {
			return exchange.Invalid("If-Match", "If-Match has a meaning with PUT, PATCH and DELETE /v1/semaphores/{name} alone. Other routes take ?epoch=.")
		}
		if _, present := r.Header["If-None-Match"]; present && (r.Method != http.MethodPut || path != "/v1/semaphores/:name") {
			return exchange.Invalid("If-None-Match", noneMatchForm)
		}
		return next(c)
	}
}

// refuseKeys refuses an idempotency key on a route that does not recognise repeats. A read with a key passes, because
// a read may always be repeated.
func refuseKeys(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if _, present := r.Header["Idempotency-Key"]; present && r.Method != http.MethodGet && r.Method != http.MethodHead {
			return exchange.Invalid("Idempotency-Key", "Changes of the cluster take no key: look at GET /v1/cluster before you repeat one.")
		}
		return next(c)
	}
}

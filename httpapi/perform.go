package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// perform is the handler of every route that is one operation: read, do, render.
func (h *Handler) perform(op *operation) echo.HandlerFunc {
	return func(c echo.Context) error {
		p, err := h.readParams(c, op)
		if err != nil {
			return err
		}
		reply, err := h.node.Do(c.Request().Context(), op.call(p, h.node))
		if err != nil {
			return err
		}
		h.setIndex(c, reply.Index)
		return h.render(c, h.conclude(op, p, &reply))
	}
}

// readParams reads an operation's parameters from path, query, headers and body.
func (h *Handler) readParams(c echo.Context, op *operation) (*params, error) {
	p := &params{maxWaitMS: h.cfg.MaxWait.Milliseconds()}
	if err := p.readPath(c); err != nil {
		return nil, err
	}
	if err := p.readQuery(c, op); err != nil {
		return nil, err
	}
	if err := p.readHeader(c.Request().Header, op); err != nil {
		return nil, err
	}
	body, err := h.readBody(c, h.cfg.BodyBytes)
	if err != nil {
		return nil, err
	}
	queryWait := p.given.has(fieldWait)
	if err := p.read(body, op.body); err != nil {
		return nil, err
	}
	if queryWait && bodyGives(body, "wait") {
		return nil, invalid("wait", "Give wait in the query or in the body, not in both.")
	}
	h.doneWithBody(c) // what follows may wait for long
	return p, op.complete(p, op.routeNeeds())
}

func bodyGives(body value, name string) bool {
	for raw := range body.members() {
		if string(raw) == name {
			return true
		}
	}
	return false
}

// readPath takes what the route's path names: {name}, {id} or {session}.
func (p *params) readPath(c echo.Context) (err error) {
	for _, param := range c.ParamNames() {
		text, ok := pathParam(c, param)
		switch {
		case !ok:
			return invalid(param, "The path's percent-encoding can't be read.")
		case param == "name":
			p.given |= fieldSemaphore
			p.semaphore, err = semaphoreName(param, text)
		default:
			p.given |= fieldSession
			p.session, err = sessionID("session", text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readQuery takes the parameters that the operation knows.
func (p *params) readQuery(c echo.Context, op *operation) error {
	q, err := parseQuery(c, op.queryNames()...)
	if err != nil || q == nil {
		return err
	}
	if p.epoch, err = q.epoch(); err != nil {
		return err
	}
	if p.token, err = q.token(); err != nil {
		return err
	}
	if p.try, err = q.flag("try"); err != nil {
		return err
	}
	if p.leases, err = q.flag("leases"); err != nil {
		return err
	}
	if p.waitMS, err = q.waitMS(p.maxWaitMS); err != nil {
		return err
	}
	if _, given := q.text("wait"); given {
		p.given |= fieldWait
	}
	reason, given, err := q.reason()
	if given {
		p.given |= fieldReason
		p.reason = reason
	}
	return err
}

func (op *operation) queryNames() []string {
	var names []string
	for _, known := range []struct {
		field fields
		name  string
	}{{fieldEpoch, "epoch"}, {fieldToken, "token"}, {fieldTry, "try"}, {fieldReason, "reason"}, {fieldWait, "wait"},
		{fieldShowLeases, "leases"}} {
		if op.query.has(known.field) || known.field == fieldWait && op.body.has(fieldWait) {
			names = append(names, known.name)
		}
	}
	return names
}

// readHeader takes Idempotency-Key, and the condition that there is. Others are
// refused before, see refuseConditions.
func (p *params) readHeader(header http.Header, op *operation) error {
	if keys, given := header["Idempotency-Key"]; given {
		if len(keys) != 1 || !validKey(keys[0]) {
			return invalid("Idempotency-Key", keyForm)
		}
		p.key = keys[0]
	}
	if conditions, given := header["If-None-Match"]; given {
		if !op.query.has(fieldOnlyNew) || len(conditions) != 1 || conditions[0] != "*" {
			return invalid("If-None-Match", noneMatchForm)
		}
		p.onlyNew = true
	}
	return nil
}

const noneMatchForm = "Only If-None-Match: * with PUT /v1/semaphores/{name} has a meaning here."

// refuseConditions refuses what a request asks for in its head and can't get,
// rather than ignore it: a condition, a key where repeats are not recognised. A
// read with a key is one; it may always be repeated.
func refuseConditions(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, path := c.Request(), c.Path()
		if _, given := r.Header["If-Match"]; given {
			return invalid("If-Match", "Name the epoch that is meant by ?epoch= instead.")
		}
		if _, given := r.Header["If-None-Match"]; given && (r.Method != http.MethodPut || path != "/v1/semaphores/:name") {
			return invalid("If-None-Match", noneMatchForm)
		}
		changes := r.Method != http.MethodGet && r.Method != http.MethodHead
		if _, given := r.Header["Idempotency-Key"]; given && changes && strings.HasPrefix(path, "/v1/cluster") {
			return invalid("Idempotency-Key", "Changes of the cluster take no key: look at GET /v1/cluster before you repeat one.")
		}
		return next(c)
	}
}

// render sends an answer.
func (h *Handler) render(c echo.Context, a answer) error {
	header := c.Response().Header()
	if a.replayed {
		header.Set("Idempotency-Replayed", "true")
	}
	if refusal, isRefusal := a.body.(*problem); isRefusal {
		return refusal
	}
	if a.location != "" {
		header.Set("Location", a.location)
	}
	if a.body == nil {
		return c.NoContent(a.status)
	}
	return h.sendJSON(c, a.status, "application/json", a.body)
}

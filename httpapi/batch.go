package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

type batchBody struct {
	Results []resultBody `json:"results"`
}

// resultBody is what one operation of a batch got, as its single route would
// have answered.
type resultBody struct {
	Status   int  `json:"status"`
	Body     any  `json:"body,omitempty"`
	Replayed bool `json:"replayed,omitempty"`
}

// batchRequest is one member of a batch as it was read: what to do, or why not.
type batchRequest struct {
	op      *operation
	params  params
	problem *problem
}

// call answers the cluster's form of it.
func (b *batchRequest) call(node Commands) cluster.Call { return b.op.call(&b.params, node) }

// batch performs many operations in one request and one round trip. An
// operation that can't be read gets its 400 and stops no other.
func (h *Handler) batch(c echo.Context) error {
	requests, err := h.readBatch(c)
	if err != nil {
		return err
	}
	calls, err := h.batchCalls(requests)
	if err != nil {
		return err
	}
	if h.replies.over() { // what is done can't be kept back
		return h.replies.full("reply-memory", "large replies", "max-reply-memory")
	}
	var replies []cluster.Reply
	var failed []error
	if len(calls) > 0 {
		replies, failed = h.node.DoMany(c.Request().Context(), calls)
	}
	if err := c.Request().Context().Err(); err != nil {
		return err // nobody reads the results
	}
	if len(replies) != len(calls) || len(failed) != len(calls) {
		return errors.New("the node answered another number of calls than it was asked")
	}
	return h.sendJSON(c, http.StatusOK, "application/json", h.batchResults(c, requests, replies, failed))
}

// batchCalls makes the cluster's form of what could be read. An operation that
// lists semaphores counts as many.
func (h *Handler) batchCalls(requests []batchRequest) ([]cluster.Call, error) {
	calls, weight := make([]cluster.Call, 0, len(requests)), 0
	for i := range requests {
		if requests[i].problem != nil {
			continue
		}
		call := requests[i].call(h.node)
		if weight += h.batchWeight(call.Command); weight > h.cfg.BatchSize {
			return nil, h.batchTooLong()
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// deliverWeight is what a delivery counts for: as many semaphores as a wait list has
// by default. It lists none, but its reply does, and so does each repeat of it.
const deliverWeight = 64

func (h *Handler) batchWeight(c fsm.Command) int {
	if _, delivers := c.(fsm.ListDeliver); delivers {
		return min(deliverWeight, h.cfg.BatchSize)
	}
	return fsm.Weight(c)
}

func (h *Handler) batchTooLong() *problem {
	return invalid("operations", "A batch has up to "+strconv.Itoa(h.cfg.BatchSize)+
		" operations; one that lists semaphores counts as many, a list-deliver as "+strconv.Itoa(deliverWeight)+".")
}

func (h *Handler) batchResults(c echo.Context, requests []batchRequest, replies []cluster.Reply, failed []error) batchBody {
	results := make([]resultBody, len(requests))
	done := 0
	for i := range requests {
		r := &requests[i]
		a := answer{}
		switch {
		case r.problem != nil:
			a = refusedAnswer(r.problem)
		case failed[done] != nil:
			a = refusedAnswer(h.problemOf(c, failed[done]))
			done++
		default:
			h.setIndex(c, replies[done].Index)
			a = h.conclude(r.op, &r.params, &replies[done])
			done++
		}
		results[i] = resultBody{a.status, a.body, a.replayed}
	}
	return batchBody{results}
}

// readBatch reads {"operations":[…]}.
func (h *Handler) readBatch(c echo.Context) ([]batchRequest, error) {
	if _, err := parseQuery(c); err != nil {
		return nil, err
	}
	if _, given := c.Request().Header["Idempotency-Key"]; given {
		return nil, invalid("Idempotency-Key", `A batch has no key of its own: give each operation a "key".`)
	}
	body, err := h.readBody(c, h.cfg.BatchBodyBytes)
	if err != nil {
		return nil, err
	}
	var list value
	for name, of := range body.members() {
		if string(name) != "operations" {
			return nil, invalid(string(name), "This request does not take this member.")
		}
		list = of
	}
	if list == nil || !list.isArray() {
		return nil, invalid("operations", "A list of operations is needed.")
	}
	return h.readOperations(list)
}

func (h *Handler) readOperations(list value) ([]batchRequest, error) {
	const shortest = len(`{"op":"open","ttl":1},`)
	requests := make([]batchRequest, 0, min(h.cfg.BatchSize, 1+len(list)/shortest))
	for item := range list.items() {
		if len(requests) == h.cfg.BatchSize {
			return nil, h.batchTooLong()
		}
		requests = append(requests, batchRequest{})
		r := &requests[len(requests)-1]
		r.problem = r.read(item)
	}
	return requests, nil
}

// anyField is what some operation of a batch takes: nothing waits in a batch.
const anyField = ^(fieldName | fieldWait)

// read reads one operation; its name may stand anywhere in it.
func (b *batchRequest) read(v value) *problem {
	if err := b.params.read(v, anyField); err != nil {
		return problemOf(err)
	}
	if !b.params.given.has(fieldOp) {
		return invalid("op", "An operation is needed.")
	}
	if b.op = operationNamed(b.params.op); b.op == nil {
		return invalid("op", "No operation has this name.")
	}
	if extra := b.params.given &^ b.op.batchFields(); extra != 0 {
		return invalid(firstName(extra), "This operation does not take this member in a batch.")
	}
	if err := b.op.complete(&b.params, b.op.batchNeeds()); err != nil {
		return problemOf(err)
	}
	return nil
}

// firstName answers the name of a member among those given, the same each time.
func firstName(given fields) string {
	first := ""
	for name, m := range members {
		if given&m.field != 0 && name != "name" && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

package v1

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

type batchBody struct {
	Results []resultBody `json:"results"`
}

type resultBody struct {
	Status   int  `json:"status"`
	Body     any  `json:"body,omitempty"`
	Replayed bool `json:"replayed,omitempty"`
}

// batchRequest is one member of a batch: an operation, or the reason why it is invalid.
type batchRequest struct {
	op      *operation
	params  params
	problem *exchange.Problem
}

// batch performs many operations in one round trip. The result of an invalid operation has status 400, and the other
// operations are performed.
func (api *API) batch(c echo.Context) error {
	requests, err := api.readBatch(c)
	if err != nil {
		return err
	}
	list, err := api.batchCalls(requests)
	if err != nil {
		return err
	}
	if err := api.x.ReplyMemory.CheckRoom(); err != nil { // check before, because the reply to a change can't be refused
		return err
	}
	var replies []calls.Reply
	var failed []error
	if len(list) > 0 {
		replies, failed = api.x.Node.DoMany(c.Request().Context(), list)
	}
	if err := c.Request().Context().Err(); err != nil {
		return err // the client has hung up
	}
	if len(replies) != len(list) || len(failed) != len(list) {
		return errors.New("the node returned another number of replies than there were calls")
	}
	return api.x.Replies.SendJSON(c, http.StatusOK, api.batchResults(c, requests, replies, failed))
}

// batchCalls returns the calls of the valid operations. It refuses a batch with too many operations, where an
// operation counts once for each semaphore that it lists.
func (api *API) batchCalls(requests []batchRequest) ([]calls.Call, error) {
	list, weight := make([]calls.Call, 0, len(requests)), 0
	for i := range requests {
		if requests[i].problem != nil {
			continue
		}
		call := requests[i].op.call(&requests[i].params, api.x.Node)
		if weight += api.batchWeight(call.Command); weight > api.cfg.BatchSize {
			return nil, api.batchTooLong()
		}
		list = append(list, call)
	}
	return list, nil
}

// deliverWeight is how many operations a delivery counts as, because its reply may list that many semaphores: it is the
// default length of a wait list.
const deliverWeight = 64

func (api *API) batchWeight(c fsm.Command) int {
	if _, delivers := c.(fsm.ListDeliver); delivers {
		return min(deliverWeight, api.cfg.BatchSize)
	}
	return fsm.Weight(c)
}

func (api *API) batchTooLong() *exchange.Problem {
	return exchange.Invalid("operations", "A batch has up to "+strconv.Itoa(api.cfg.BatchSize)+
		" operations; one that lists semaphores counts as many, a list-deliver as "+strconv.Itoa(deliverWeight)+".")
}

func (api *API) batchResults(c echo.Context, requests []batchRequest, replies []calls.Reply, failed []error) batchBody {
	results := make([]resultBody, len(requests))
	done := 0
	for i := range requests {
		r := &requests[i]
		resp := response{}
		switch {
		case r.problem != nil:
			resp = refusedResponse(r.problem)
		case failed[done] != nil:
			resp = refusedResponse(api.x.Replies.LoggedProblem(c, failed[done]))
			done++
		default:
			reply := &replies[done]
			api.x.Replies.SetIndex(c, reply.Index)
			exchange.UseOnlyResult(reply)
			resp = api.responseTo(r.op, &r.params, reply)
			done++
		}
		results[i] = resultBody{resp.status, resp.body, resp.replayed}
	}
	return batchBody{results}
}

func (api *API) readBatch(c echo.Context) ([]batchRequest, error) {
	if _, err := exchange.ParseQuery(c); err != nil {
		return nil, err
	}
	if _, present := c.Request().Header["Idempotency-Key"]; present {
		return nil, exchange.Invalid("Idempotency-Key", `A batch has no key: give each operation a "key".`)
	}
	body, err := api.x.Bodies.ReadObject(c, api.cfg.BatchBodyBytes)
	if err != nil {
		return nil, err
	}
	var list strictjson.Value
	for name, value := range body.Members() {
		if string(name) != "operations" {
			return nil, exchange.Invalid(string(name), "This request does not take this member.")
		}
		list = value
	}
	if list == nil || !list.IsArray() {
		return nil, exchange.Invalid("operations", "A list of operations is needed.")
	}
	return api.readOperations(list)
}

func (api *API) readOperations(list strictjson.Value) ([]batchRequest, error) {
	const typical = 64 // size of an operation, in bytes
	requests := make([]batchRequest, 0, min(api.cfg.BatchSize, 1+len(list)/typical))
	for item := range list.Items() {
		if len(requests) == api.cfg.BatchSize {
			return nil, api.batchTooLong()
		}
		requests = append(requests, batchRequest{})
		requests[len(requests)-1].read(item)
	}
	return requests, nil
}

// anyField has the members that at least one operation of a batch takes.
const anyField = ^(fieldName | fieldWait | fieldRelease)

// read reads one operation, or sets the reason why it is invalid.
func (b *batchRequest) read(v strictjson.Value) {
	if err := b.readInto(v); err != nil {
		*b = batchRequest{problem: exchange.ProblemOf(err)}
	}
}

// readInto reads one operation. The member with its name may come after the others.
func (b *batchRequest) readInto(v strictjson.Value) error {
	if err := b.params.readMembers(v, anyField); err != nil {
		return err
	}
	if !b.params.present.has(fieldOp) {
		return exchange.Invalid("op", "An operation is needed.")
	}
	i := slices.IndexFunc(operations, func(op *operation) bool { return op.name == b.params.op })
	if i < 0 {
		return exchange.Invalid("op", "No operation has this name.")
	}
	b.op = operations[i]
	if extra := b.params.present &^ b.op.batchFields(); extra != 0 {
		return exchange.Invalid(firstName(extra), "This operation does not take this member in a batch.")
	}
	return b.op.complete(&b.params, b.op.batchRequired())
}

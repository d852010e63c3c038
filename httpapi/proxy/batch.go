package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// part has the operations of a batch for one cell, and the places of these operations in the batch.
type part struct {
	cell       *cells.Cell
	operations []json.RawMessage
	places     []int
	reply      *reply // nil without one
}

// batch sends each operation to its cell. The operations of a cell stay in their order.
func (a *routedRequest) batch() error {
	data, err := a.body()
	if err != nil {
		return err
	}
	var operations []json.RawMessage
	members := membersOf(data)
	if json.Unmarshal(members["operations"], &operations) != nil || len(members) != 1 {
		operations = nil // the node refuses it
	}
	results := make([]json.RawMessage, len(operations))
	parts := map[*cells.Cell]*part{}
	for i, operation := range operations {
		c, err := a.cellOf(a.subjectOf(operation))
		if err != nil {
			results[i] = resultOf(err)
			continue
		}
		if parts[c] == nil {
			parts[c] = &part{cell: c}
		}
		parts[c].operations = append(parts[c].operations, operation)
		parts[c].places = append(parts[c].places, i)
	}
	for c, p := range parts {
		if len(p.operations) == len(operations) {
			a.send(a.w, a.r, a.table.nodes[c.Number])
			return nil
		}
	}
	if len(operations) == 0 {
		c, err := a.cellOf(subject{})
		if err == nil {
			a.send(a.w, a.r, a.table.nodes[c.Number])
		}
		return err
	}
	var sent sync.WaitGroup
	for _, p := range parts {
		sent.Go(func() { a.sendPart(p, results) })
	}
	sent.Wait()
	var replies []*reply
	for _, p := range parts {
		if p.reply != nil {
			replies = append(replies, p.reply)
		}
	}
	a.allowPages(replies)
	return a.sendJSON(map[string]any{"results": results})
}

// administrative lists the batch operations whose single requests isAdministrative accepts.
var administrative = []string{"create", "put", "patch", "delete", "set", "group-put", "free-lost", "release", "revoke", "list-remove", "item-delete"}

// subjectOf reads an operation of a batch.
func (a *routedRequest) subjectOf(operation json.RawMessage) subject {
	members := membersOf(operation)
	op := textOf(members["op"])
	if a.chosen != nil && slices.Contains(administrative, op) {
		return subject{}
	}
	s := subject{names: namesIn(members["semaphores"], members["leases"]), sessions: notEmpty(textOf(members["session"])), cluster: op == "raise-tokens"}
	for _, member := range []string{"semaphore", "item"} {
		s.names = append(s.names, notEmpty(textOf(members[member]))...)
	}
	return s
}

// sendPart sends the operations of a cell, and puts each result into its place. If the cell refuses the whole request,
// each of these operations gets this refusal as its result.
func (a *routedRequest) sendPart(p *part, results []json.RawMessage) {
	body, err := json.Marshal(map[string]any{"operations": p.operations})
	if err == nil {
		r := a.copyFor(a.r.Context(), a.r.URL.RawQuery)
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil } // state: of one request
		r.Body, _ = r.GetBody()
		r.ContentLength = int64(len(body))
		p.reply, err = a.table.ask(p.cell, r) // state: once the cell has replied
	}
	var found []json.RawMessage
	if err == nil && p.reply.status == http.StatusOK {
		_ = json.Unmarshal(membersOf(p.reply.body)["results"], &found)
	}
	for i, place := range p.places {
		switch {
		case err != nil:
			results[place] = resultOf(err)
		case len(found) == len(p.places):
			results[place] = found[i]
		case p.reply.status != http.StatusOK && json.Valid(p.reply.body):
			results[place] = resultWith(p.reply.status, p.reply.body)
		default:
			results[place] = resultOf(exchange.ErrInternal)
		}
	}
}

// resultOf is the result of an operation that the proxy refuses.
func resultOf(err error) json.RawMessage {
	problem := exchange.ProblemOf(err)
	return resultWith(problem.Status, problem)
}

func resultWith(status int, body any) json.RawMessage {
	if raw, ok := body.([]byte); ok {
		body = json.RawMessage(raw)
	}
	text, err := json.Marshal(map[string]any{"status": status, "body": body})
	if err != nil { // impossible: a problem has texts and numbers
		panic(err)
	}
	return text
}

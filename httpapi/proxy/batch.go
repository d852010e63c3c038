package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// part is the operations of a batch for one cell, and their places in the batch.
type part struct {
	cell       *cells.Cell
	operations []json.RawMessage
	places     []int
}

// batch sends each operation to its cell. The operations of a cell stay in their order.
func (a *asking) batch() error {
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
		c, err := a.table.cellOf(subjectOf(operation))
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
		a.send(a.w, a.r, a.table.nodes[a.table.OfName("").Number])
		return nil
	}
	var sent sync.WaitGroup
	for _, p := range parts {
		sent.Go(func() { a.sendPart(p, results) })
	}
	sent.Wait()
	return a.sendJSON(map[string]any{"results": results})
}

// subjectOf reads an operation of a batch.
func subjectOf(operation json.RawMessage) subject {
	members := membersOf(operation)
	s := subject{names: namesIn(members["semaphores"], members["leases"]), sessions: notEmpty(textOf(members["session"]))}
	for _, member := range []string{"semaphore", "item"} {
		s.names = append(s.names, notEmpty(textOf(members[member]))...)
	}
	return s
}

// sendPart sends the operations of a cell, and puts each result into its place. If the cell refuses the whole request,
// each operation has that refusal.
func (a *asking) sendPart(p *part, results []json.RawMessage) {
	body, err := json.Marshal(map[string]any{"operations": p.operations})
	var answer *reply
	if err == nil {
		r := a.copyFor(a.r.Context(), a.r.URL.RawQuery)
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil } // state: of one request
		r.Body, _ = r.GetBody()
		r.ContentLength = int64(len(body))
		answer, err = a.table.ask(p.cell, r)
	}
	var found []json.RawMessage
	if err == nil && answer.status == http.StatusOK {
		_ = json.Unmarshal(membersOf(answer.body)["results"], &found)
	}
	for i, place := range p.places {
		switch {
		case err != nil:
			results[place] = resultOf(err)
		case len(found) == len(p.places):
			results[place] = found[i]
		case answer.status != http.StatusOK && json.Valid(answer.body):
			results[place] = resultWith(answer.status, answer.body)
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

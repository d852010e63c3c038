package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Operation is one operation of a batch. docs/api-many.md lists, under Batch, the values of Op ("up", "release", …)
// and the members that each takes. A zero value leaves a member out.
type Operation struct {
	Op         string            `json:"op"`
	Semaphore  string            `json:"semaphore,omitempty"`
	Session    string            `json:"session,omitempty"`
	Count      int64             `json:"count,omitempty"`
	Permits    *int64            `json:"permits,omitempty"`
	Value      *int64            `json:"value,omitempty"`
	Level      *int32            `json:"level,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Epoch      uint64            `json:"epoch,omitempty"`
	Token      uint64            `json:"token,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Partial    bool              `json:"partial,omitempty"`
	Try        bool              `json:"try,omitempty"`
	OnlyNew    bool              `json:"only_new,omitempty"`
	Mode       string            `json:"mode,omitempty"`
	OnEnd      string            `json:"on_end,omitempty"`
	Semaphores []client.Want     `json:"semaphores,omitempty"`
	Leases     []client.Want     `json:"leases,omitempty"`
	Key        string            `json:"key,omitempty"` // "": Send draws a random key
	TTL        time.Duration     `json:"-"`

	Group      string        `json:"group,omitempty"` // "group-put" always has it
	HeadStart  time.Duration `json:"-"`
	Limit      *int64        `json:"limit,omitempty"`
	Groups     string        `json:"groups,omitempty"`
	PerGroup   int64         `json:"per_group,omitempty"`
	Paused     string        `json:"paused,omitempty"`
	MaxWaiting int64         `json:"max_waiting,omitempty"`
	WhenFull   string        `json:"when_full,omitempty"`
	// Null names the members to send as null, for example "paused" to end a pause.
	Null []string `json:"-"`
}

// MarshalJSON writes an operation with the API's members.
func (o Operation) MarshalJSON() ([]byte, error) {
	type plain Operation
	var times []reply.Named
	if o.TTL != 0 {
		times = append(times, wholeMilliseconds("ttl", o.TTL))
	}
	if o.HeadStart != 0 {
		times = append(times, wholeMilliseconds("head_start", o.HeadStart))
	}
	text, err := reply.WriteTimes(plain(o), times...)
	if err != nil {
		return nil, err
	}
	text = text[:len(text)-1]
	for _, name := range o.Null {
		text = fmt.Appendf(text, ",%q:null", name)
	}
	if o.Op == "group-put" && o.Group == "" {
		text = append(text, `,"group":""`...)
	}
	return append(text, '}'), nil
}

func wholeMilliseconds(member string, d time.Duration) reply.Named {
	return reply.Member(member, time.Duration(calls.Milliseconds(d))*time.Millisecond)
}

// Result is the outcome of one operation of a batch.
type Result struct {
	Status   int             `json:"status"` // the HTTP status that the operation's own route would have
	Body     json.RawMessage `json:"body"`
	Replayed bool            `json:"replayed"` // this is the outcome of an earlier operation with the same key

	calls *calls.Caller
}

// Err returns the refusal of the operation as a *client.Error, or nil if it succeeded.
func (r *Result) Err() error {
	if r.Status < http.StatusMultipleChoices {
		return nil
	}
	var document struct{ Code calls.Code }
	_ = json.Unmarshal(r.Body, &document) // on failure, the error has no code
	return r.calls.Refused(&calls.Refusal{Status: r.Status, Code: document.Code, Document: r.Body})
}

// Send submits up to 1,000 operations in one round trip, and returns a result for each, in the same order. The batch
// is not atomic, and no operation waits. The error is about the batch as a whole. Each operation is carried out at
// most once, even if the batch is repeated.
func Send(ctx context.Context, c *client.Client, operations ...Operation) ([]Result, error) {
	body := struct {
		Operations []Operation `json:"operations"`
	}{make([]Operation, len(operations))}
	for i, o := range operations {
		if body.Operations[i] = o; o.Key == "" {
			body.Operations[i].Key = calls.NewKey()
		}
	}
	var read struct {
		Results []Result `json:"results"`
	}
	if _, err := c.Calls().Read(ctx, calls.Call{Method: http.MethodPost, Path: []string{"v1", "batch"}, Body: body}, &read); err != nil {
		return nil, err
	}
	if len(read.Results) != len(operations) {
		return nil, errors.New("signalbox: a node's reply lacks results of the batch")
	}
	results := make([]Result, len(read.Results))
	for i, r := range read.Results {
		results[i] = Result{Status: r.Status, Body: r.Body, Replayed: r.Replayed, calls: c.Calls()}
	}
	return results, nil
}

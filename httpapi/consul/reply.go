package consul

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const jsonType = "application/json"

// reply is a reply whose bytes are given exactly.
type reply struct {
	status      int
	contentType string // "": no body
	body        []byte
}

// notFound is the reply of a read that finds no key.
var notFound = reply{status: http.StatusNotFound}

// found is the reply of a read that finds a body of JSON.
func found(body []byte) reply { return reply{http.StatusOK, jsonType, body} }

// send sends a reply; JSON is indented where the query asks for that.
func (d *dialect) send(c echo.Context, q *query, r reply) error {
	if r.contentType == "" {
		return d.Replies.Send(c, r.status, "", nil)
	}
	if r.contentType == jsonType && q.has("pretty") {
		var indented bytes.Buffer
		_ = json.Indent(&indented, r.body, "", "    ") // the body is JSON
		indented.WriteByte('\n')
		r.body = indented.Bytes()
	}
	reserved, ok := d.ReplyMemory.Reserve(int64(len(r.body)))
	if !ok {
		return errReplyMemory
	}
	defer d.ReplyMemory.Release(reserved)
	return d.Replies.Send(c, r.status, r.contentType, r.body)
}

// sendOutcome sends true or false, the body of the reply to each PUT and DELETE.
func (d *dialect) sendOutcome(c echo.Context, q *query, done bool) error {
	return d.send(c, q, found(strconv.AppendBool(nil, done)))
}

// sendJSON sends a body as encoding/json writes it.
func (d *dialect) sendJSON(c echo.Context, q *query, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return d.send(c, q, found(encoded))
}

// sendRead sends the reply to a GET, with the headers that each reply to a GET has, even a 404.
func (d *dialect) sendRead(c echo.Context, q *query, at calls.Reading, index uint64, r reply) error {
	header := c.Response().Header()
	known, contactMS := true, int64(0)
	if q.stale {
		known = d.Node.Status().Leader != ""
		if contactMS = at.LastContact.Milliseconds(); at.LastContact < 0 {
			contactMS = neverMS
		}
	}
	header.Set("X-Consul-Index", strconv.FormatUint(max(index, 1), 10))
	header.Set("X-Consul-KnownLeader", strconv.FormatBool(known))
	header.Set("X-Consul-LastContact", strconv.FormatInt(contactMS, 10))
	return d.send(c, q, r)
}

// neverMS is X-Consul-LastContact if this node has never heard of a leader. It must be small enough: a client multiplies
// it into a duration of 64 bits.
const neverMS = 1 << 40

const (
	longestList = 32 << 20 // bytes of a list in JSON
	listStep    = 1 << 20  // bytes that a growing list reserves at a time
)

var (
	errListTooLong = exchange.Sentence(http.StatusInternalServerError, "The list has more than 32 MiB. Ask for a longer prefix, or for the keys alone.")
	errReplyMemory = retryable("This node has no room for more large replies at the moment (--max-reply-memory). Try again later, or at another node.", "")
)

// list is a list in JSON that grows within the budget of replies. The caller of newList calls done before the list is
// sent.
type list struct {
	d        *dialect
	out      []byte
	room     int // bytes of out that fit into the reserved memory
	reserved int64
}

func (d *dialect) newList() *list { return &list{d: d, out: []byte{'['}, room: listStep / 64} }

// add appends an element.
func (l *list) add(element any) error {
	encoded, err := json.Marshal(element)
	if err != nil {
		return err
	}
	size := len(l.out) + len(encoded) + 2
	if size > longestList {
		return errListTooLong
	}
	for l.room < size {
		bytes, ok := l.d.ReplyMemory.Reserve(listStep)
		if !ok {
			return errReplyMemory
		}
		l.room += listStep
		l.reserved += bytes
	}
	if len(l.out) > 1 {
		l.out = append(l.out, ',')
	}
	l.out = append(l.out, encoded...)
	return nil
}

func (l *list) empty() bool { return len(l.out) == 1 }

func (l *list) bytes() []byte { return append(l.out, ']') }

// done releases the reserved memory. It may be called more than once.
func (l *list) done() {
	l.d.ReplyMemory.Release(l.reserved)
	l.reserved = 0
}

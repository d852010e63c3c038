package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

const (
	// HeaderIndex is the header with the index of the state that a reply reflects.
	HeaderIndex = "X-Signalbox-Index"
	// HeaderLastContact is the header with the age of a stale read; -1 is unknown.
	HeaderLastContact = "X-Signalbox-Last-Contact-Ms"
	// HeaderNotice is the header with the id of the notice that a refused request left.
	HeaderNotice = "X-Signalbox-Notice"
	// StatusGone is the status that metrics count for a client that hung up.
	StatusGone = 499
)

// Replies sends replies and sets their headers. It is safe for concurrent use.
type Replies struct {
	state   State
	memory  *ReplyMemory
	timeout time.Duration // for a client to take a reply
	log     hclog.Logger

	highestIndex atomic.Uint64 // of all replies so far
}

// Perform performs a command of a request, and sets the headers of its reply.
func (x *Exchange) Perform(ctx context.Context, c echo.Context, call cluster.Call) (*cluster.Reply, error) {
	reply, err := x.Node.Do(ctx, call)
	if err != nil {
		return reply, err
	}
	x.Replies.SetIndex(c, reply.Index)
	if reply.Replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	UseOnlyResult(reply)
	return reply, nil
}

// UseOnlyResult gives the reply to one renewal the result of this renewal.
func UseOnlyResult(r *cluster.Reply) {
	if len(r.Each) == 1 {
		replayed := r.Replayed
		r.Result = r.Each[0]
		r.Replayed = replayed
	}
}

// Begin sets the headers that every reply has, at the latest when the reply is sent.
func (r *Replies) Begin(c echo.Context) {
	response := c.Response()
	response.Header().Set("Cache-Control", "no-store")
	response.Before(func() {
		r.setIndexOfNode(c)
		leaveBody(c)
		r.LimitWrites(response)
	})
}

// LimitWrites gives the client BodyTimeout to take the reply, counted from the reply's
// beginning; a WriteTimeout of the server would count the wait before it. net/http removes
// the deadline before the next request. It has no effect on a connection without deadlines,
// as in tests.
func (r *Replies) LimitWrites(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(r.timeout))
}

// CutOff breaks the connection of a reply that has begun and must not look whole: the reply's
// last bytes can't be written any more.
func CutOff(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}

// Send sends a whole reply, without a Content-Type if contentType is empty. It returns nil, also if the client does not
// take the reply.
func (r *Replies) Send(c echo.Context, status int, contentType string, data []byte) error {
	response := c.Response()
	if contentType != "" {
		response.Header().Set("Content-Type", contentType)
	} else {
		response.Header()["Content-Type"] = nil // else net/http would guess one
	}
	response.Header().Set("Content-Length", strconv.Itoa(len(data)))
	response.WriteHeader(status)
	if _, err := response.Write(data); err != nil {
		r.log.Debug("reply not delivered", Named(c, "error", err)...)
	}
	return nil
}

// SendText sends a text.
func (r *Replies) SendText(c echo.Context, status int, text string) error {
	return r.Send(c, status, PlainText, []byte(text))
}

// SendSentence sends the refusal of a request that failed with err: its status, with one
// sentence of text.
func (r *Replies) SendSentence(c echo.Context, err error) error {
	p := r.LoggedProblem(c, err)
	p.SetRetryAfter(c.Response().Header())
	return r.SendText(c, p.Status, p.Detail)
}

// SendJSON sends a reply that reports the outcome of a request. It is never refused,
// whatever its size.
func (r *Replies) SendJSON(c echo.Context, status int, body any) error {
	contentType := "application/json"
	if _, refused := body.(*Problem); refused {
		contentType = "application/problem+json"
	}
	out, release := Buffer()
	defer release()
	if err := writeJSON(out, body); err != nil {
		return err
	}
	if size := int64(out.Len()); size > freeReplyBytes {
		r.memory.add(countedReply(size))
		defer r.memory.subtract(countedReply(size))
	}
	return r.Send(c, status, contentType, out.Bytes())
}

// SendRead sends the reply to a read, or refuses the read if the replies that clients have
// not taken leave no room. build reads the state and returns the body; it must not block.
func (r *Replies) SendRead(c echo.Context, build func() (any, error)) error {
	out, release := Buffer()
	defer release()
	if err := r.build(c.Request().Context(), out, build); err != nil {
		return err
	}
	bytes, ok := r.memory.Reserve(int64(out.Len()))
	if !ok {
		return r.memory.refusal()
	}
	defer r.memory.Release(bytes)
	return r.Send(c, http.StatusOK, "application/json", out.Bytes())
}

func (r *Replies) build(ctx context.Context, out *bytes.Buffer, build func() (any, error)) error {
	if err := r.memory.BeginLarge(ctx); err != nil {
		return err
	}
	defer r.memory.EndLarge()
	body, err := build()
	if err != nil {
		return err
	}
	return writeJSON(out, body)
}

// SendProblem sends the reply to a request that failed with err: a problem.
func (r *Replies) SendProblem(c echo.Context, err error) {
	if HungUp(c, err) {
		_ = c.NoContent(StatusGone)
		return
	}
	p := *r.LoggedProblem(c, err)
	p.Instance = "/requests/" + url.PathEscape(RequestID(c)) // names the request; not served
	header := c.Response().Header()
	header.Del("Location")
	header.Del("ETag") // of a reply that was not sent
	p.SetRetryAfter(header)
	if err := r.SendJSON(c, p.Status, &p); err != nil {
		r.log.Error("problem not rendered", Named(c, "error", err)...)
	}
}

// HungUp reports whether a request failed because its client hung up.
func HungUp(c echo.Context, err error) bool {
	return errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil
}

// LoggedProblem translates an error into a problem. It logs a fault of this program, since
// the reply does not show it.
func (r *Replies) LoggedProblem(c echo.Context, err error) *Problem {
	p := ProblemOf(err)
	if p.Code == "internal" && !errors.Is(err, ErrInternal) {
		r.log.Error("request failed", Named(c, "method", c.Request().Method, "route", c.Path(), "error", err)...)
	}
	return p
}

// SetIndex sets the header with the index that a reply reflects; of several calls the
// highest index counts.
func (r *Replies) SetIndex(c echo.Context, index uint64) {
	header := c.Response().Header()
	if before, err := strconv.ParseUint(header.Get(HeaderIndex), 10, 64); err == nil && before >= index {
		return
	}
	header.Set(HeaderIndex, strconv.FormatUint(index, 10))
	for {
		highest := r.highestIndex.Load()
		if highest >= index || r.highestIndex.CompareAndSwap(highest, index) {
			return
		}
	}
}

// SetHighestIndex sets the highest index of all replies so far, for a reply that does not
// read the state.
func (r *Replies) SetHighestIndex(c echo.Context) { r.SetIndex(c, r.highestIndex.Load()) }

// setIndexOfNode sets the index of this node's state, for a reply that has no index yet.
func (r *Replies) setIndexOfNode(c echo.Context) {
	if c.Response().Header().Get(HeaderIndex) == "" {
		Reads{r.state, r}.View(c, func(*fsm.Machine) {})
	}
}

// Reads reads the state for a reply, and sets the headers that say how recent the state is.
// It is safe for concurrent use.
type Reads struct {
	state   State
	replies *Replies
}

// Await blocks until this node's state is as recent as the query requires. A stale read also
// gets the header with its age.
func (r Reads) Await(c echo.Context, q Query) (cluster.Reading, error) {
	consistency, err := q.consistency()
	if err != nil {
		return cluster.Reading{}, err
	}
	reading, err := r.state.Read(c.Request().Context(), consistency)
	if errors.Is(err, outcome.ErrBehind) {
		p := ProblemOf(err)
		r.View(c, func(m *fsm.Machine) {
			index := m.Index()
			p.Index = &index
		})
		return reading, p
	}
	if err == nil && reading.Stale {
		ms := int64(-1) // never heard from a leader
		if reading.LastContact >= 0 {
			ms = reading.LastContact.Milliseconds()
		}
		c.Response().Header().Set(HeaderLastContact, strconv.FormatInt(ms, 10))
	}
	return reading, err
}

// View calls read with the state, and sets the header with the state's index. read must not
// block, and must not keep the machine.
func (r Reads) View(c echo.Context, read func(m *fsm.Machine)) {
	var index uint64
	r.state.View(func(m *fsm.Machine) {
		index = m.Index()
		read(m)
	})
	r.replies.SetIndex(c, index)
}

// NowOf returns the cluster time from which durations are computed. The state may have
// advanced since the reading, so it is never earlier than the state's time.
func NowOf(m *fsm.Machine, reading cluster.Reading) int64 { return max(reading.NowMS, m.NowMS()) }

// Pairs is metadata as a JSON object, in the order of its keys.
type Pairs []fsm.Pair

// MarshalJSON writes {"key":"value",…}.
func (pairs Pairs) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, p := range pairs {
		if i > 0 {
			out = append(out, ',')
		}
		out = AppendText(out, p.Key)
		out = append(out, ':')
		out = AppendText(out, p.Value)
	}
	return append(out, '}'), nil
}

// AppendText appends a quoted text. It does not escape <, > and &, nor does JavaScript.
func AppendText(out []byte, text string) []byte {
	quoted, release := Buffer()
	defer release()
	_ = writeJSON(quoted, text) // a string can always be encoded
	return append(out, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer that is kept for later replies.
const maxPooled = 1 << 20

// Buffer returns an empty buffer for use until release is called.
func Buffer() (b *bytes.Buffer, release func()) {
	b = buffers.Get().(*bytes.Buffer)
	b.Reset()
	return b, func() {
		if b.Cap() <= maxPooled {
			buffers.Put(b)
		}
	}
}

func writeJSON(to *bytes.Buffer, body any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(body)
}

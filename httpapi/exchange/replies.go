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

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

const (
	// HeaderIndex is the header with the index of the state that a reply reflects.
	HeaderIndex = "X-Signalbox-Index"
	// HeaderLastContact is the header with the age of a stale read; -1: unknown.
	HeaderLastContact = "X-Signalbox-Last-Contact-Ms"
	// HeaderNotice is the header with the id of the notice that a refused request has registered.
	HeaderNotice = "X-Signalbox-Notice"
	// StatusGone is the status with which metrics count a request whose client hung up.
	StatusGone = 499
)

// Replies sends replies and sets their headers. It is safe for concurrent use.
type Replies struct {
	state   State
	memory  *ReplyMemory
	timeout time.Duration // how long a client may take to read a reply
	log     hclog.Logger

	highestIndex atomic.Uint64 // highest index of all replies so far
}

// Begin sets the headers that every reply has. It must run before the reply is sent.
func (r *Replies) Begin(c echo.Context) {
	response := c.Response()
	response.Header().Set("Cache-Control", "no-store")
	response.Before(func() {
		r.setIndexOfNode(c)
		leaveBody(c)
		r.LimitWrites(response)
	})
}

// LimitWrites gives the client its timeout to read the reply, counted from the beginning of the reply. A WriteTimeout of
// the server would also count the time before. net/http removes the deadline before the next request. In tests, a
// connection may have no deadlines; LimitWrites then has no effect.
func (r *Replies) LimitWrites(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(r.timeout))
}

// CutOff breaks the connection of a reply that failed after its beginning, so that the client notices that the reply
// is incomplete.
func CutOff(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}

// Send sends a whole reply; contentType "" means no Content-Type. It returns nil, even if the client does not take the
// reply.
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
		r.log.Debug("reply not delivered", LogPairs(c, "error", err)...)
	}
	return nil
}

// SendText sends a text.
func (r *Replies) SendText(c echo.Context, status int, text string) error {
	return r.Send(c, status, PlainText, []byte(text))
}

// SendSentence replies to a request that failed with err, with err's status and one sentence of text.
func (r *Replies) SendSentence(c echo.Context, err error) error {
	p := r.LoggedProblem(c, err)
	p.SetRetryAfter(c.Response().Header())
	return r.SendText(c, p.Status, p.Detail)
}

// SendJSON sends a reply of any size that reports the outcome of a request. The reply is never refused.
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

// SendRead replies to a read. It refuses the read if unread replies of other clients leave no room. build reads the
// state and returns the body; it must not block.
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

// SendProblem replies to a request that failed with err, with a problem.
func (r *Replies) SendProblem(c echo.Context, err error) {
	if HungUp(c, err) {
		_ = c.NoContent(StatusGone)
		return
	}
	p := *r.LoggedProblem(c, err)
	p.Instance = "/requests/" + url.PathEscape(RequestID(c)) // an id of the request, not a route
	header := c.Response().Header()
	header.Del("Location")
	header.Del("ETag") // it was set for a reply that is not sent
	p.SetRetryAfter(header)
	if err := r.SendJSON(c, p.Status, &p); err != nil {
		r.log.Error("problem not rendered", LogPairs(c, "error", err)...)
	}
}

// HungUp reports whether err is due to the client, which hung up.
func HungUp(c echo.Context, err error) bool {
	return errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil
}

// LoggedProblem translates an error into a problem. It logs a fault of this program, because the reply does not show
// it. ErrInternal stands for a fault that was logged already.
func (r *Replies) LoggedProblem(c echo.Context, err error) *Problem {
	p := ProblemOf(err)
	if p.Code == "internal" && !errors.Is(err, ErrInternal) {
		r.log.Error("request failed", LogPairs(c, "method", c.Request().Method, "route", c.Path(), "error", err)...)
	}
	return p
}

// SetIndex sets the header with the index that a reply reflects. If it is called several times, the highest index
// counts.
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

// SetHighestIndex sets the header to the highest index of all replies so far, for a reply that does not read the
// state.
func (r *Replies) SetHighestIndex(c echo.Context) { r.SetIndex(c, r.highestIndex.Load()) }

// setIndexOfNode sets the header to the index of this node's state, unless it is set already.
func (r *Replies) setIndexOfNode(c echo.Context) {
	if c.Response().Header().Get(HeaderIndex) == "" {
		Reads{r.state, r}.View(c, func(*fsm.Machine) {})
	}
}

// Reads reads the state for a reply, and sets the headers that tell how recent the state is. It is safe for concurrent
// use.
type Reads struct {
	state   State
	replies *Replies
}

// Await blocks until this node's state is as recent as the query requires. For a stale read it also sets the header
// with the state's age.
func (r Reads) Await(c echo.Context, q Query) (calls.Reading, error) {
	consistency, err := q.consistency()
	if err != nil {
		return calls.Reading{}, err
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
		ms := int64(-1) // unknown: no contact with a leader yet
		if reading.LastContact >= 0 {
			ms = reading.LastContact.Milliseconds()
		}
		c.Response().Header().Set(HeaderLastContact, strconv.FormatInt(ms, 10))
	}
	return reading, err
}

// View calls read with the state, and sets the header with the state's index. read must not block, and must not use
// the machine after it returns.
func (r Reads) View(c echo.Context, read func(m *fsm.Machine)) {
	var index uint64
	r.state.View(func(m *fsm.Machine) {
		index = m.Index()
		read(m)
	})
	r.replies.SetIndex(c, index)
}

// NowOf returns the cluster time from which a reply computes durations. It is never earlier than the state's time,
// because the state may have advanced since the reading.
func NowOf(m *fsm.Machine, reading calls.Reading) int64 { return max(reading.NowMS, m.NowMS()) }

// Pairs is metadata that is encoded as a JSON object, in the order of its keys.
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

// AppendText appends a JSON string. Like JavaScript, and unlike encoding/json, it does not escape <, > and &.
func AppendText(out []byte, text string) []byte {
	quoted, release := Buffer()
	defer release()
	_ = writeJSON(quoted, text) // a string can always be encoded
	return append(out, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled bounds the buffers that are kept for later replies.
const maxPooled = 1 << 20

// Buffer returns an empty buffer, which the caller may use until it calls release.
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

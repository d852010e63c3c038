package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

const (
	// maxGatherDelay is how long the next shared request waits for the requests under way. If these take longer, the node
	// is far away or silent.
	maxGatherDelay = 10 * time.Millisecond
	// maxMembers and maxBytes bound one shared request, well below a node's defaults (1,000 operations, 1 MiB).
	maxMembers = 256
	maxBytes   = 256 << 10
	// overloadPause is how long operations that release permits are sent separately after a node was overloaded.
	overloadPause = time.Second
	// separateFor is how long all operations are sent separately after a node or a proxy rejected a shared request.
	separateFor = time.Minute
)

// groupParameter is the only query parameter of an Operation that is text; the others are numbers or true.
const groupParameter = "group"

// Operation makes it possible to send a call in a shared request, as one of its operations. The operation in JSON has
// the members below and all members of the call's body and query.
type Operation struct {
	Name               string
	Semaphore, Session string // "" if the operation has no such member
	// Late marks an operation that may be carried out after its caller has given up. Other operations are gathered
	// only with a key, with which the caller can find out their outcome.
	Late bool
}

// givesBack reports whether the operation releases permits. A node prefers such an operation when it is overloaded,
// but only in a separate request.
func (o *Operation) givesBack() bool {
	return o.Name == "release" || o.Name == "end" || o.Name == "up"
}

var (
	// errSeparate: the node rejected the shared request, so each member is sent separately.
	errSeparate = errors.New("the request is sent separately")
	// errUnsent ends an attempt that was given up before it was sent.
	errUnsent = errors.New("not sent")
	// errUntried ends an attempt that was given up while it was gathered, so the node is not to blame.
	errUntried = fmt.Errorf("%w: it waited for other calls", errUnsent)
)

// gatherer sends the attempts at one node. The first attempt is sent at once. Attempts that come while a request is
// under way share the next request, which is sent when that request has returned. So a lone caller does not wait for
// others, and a busy process sends fewer requests. Caller.try (attempt.go) uses it.
type gatherer struct {
	c    *Caller
	node *nodes.Node

	mu              sync.Mutex
	underWay        int            // how many requests are under way
	overloadedUntil time.Time      // until when operations that release permits are sent separately
	separateUntil   time.Time      // until when all operations are sent separately
	next            *sharedRequest // gathers the attempts for the next request; nil: no attempt yet
}

// sharedRequest is one request of several attempts.
type sharedRequest struct {
	gatherer *gatherer
	timer    *time.Timer
	ended    chan struct{} // closed once the request is over
	abort    context.CancelFunc

	// Guarded by gatherer.mu.
	members []*member
	bytes   int
	sent    bool
	waiting int // how many members have a caller that still waits
}

type member struct {
	operation []byte
	result    chan outcome // capacity 1
}

type outcome struct {
	reply Reply
	err   error
}

func (c *Caller) gathererFor(node *nodes.Node) *gatherer {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gatherers[node]
	if g == nil {
		g = &gatherer{c: c, node: node}
		c.gatherers[node] = g
	}
	return g
}

// shareable reports whether a call may share a request with other calls. A call that waits may not, because a node
// would hold the whole request, and so delay the replies to the others.
func (k *Call) shareable() bool {
	return k.Operation.Name != "" && !k.waits() && len(k.Header) == 0 && (k.Key != "" || k.Operation.Late) &&
		utf8.ValidString(k.Operation.Semaphore) && utf8.ValidString(k.Query.Get(groupParameter)) // JSON would replace invalid bytes
}

// try makes one attempt: in a shared request, or by a call of sendSeparately, which sends a separate request.
func (g *gatherer) try(ctx context.Context, k *Call, body []byte, sendSeparately func() (Reply, error)) (Reply, error) {
	g.mu.Lock()
	if now := time.Now(); g.underWay == 0 || now.Before(g.separateUntil) || k.Operation.givesBack() && now.Before(g.overloadedUntil) {
		g.underWay++
		g.mu.Unlock()
		defer g.finishRequest()
		return sendSeparately()
	}
	m := &member{operation: k.operation(body), result: make(chan outcome, 1)}
	s := g.join(m)
	g.mu.Unlock()
	select {
	case o := <-m.result:
		if errors.Is(o.err, errSeparate) {
			g.mu.Lock()
			g.separateUntil = time.Now().Add(separateFor)
			g.mu.Unlock()
			return sendSeparately()
		}
		if errors.Is(o.err, Code("overloaded")) && k.Operation.givesBack() {
			g.mu.Lock()
			g.overloadedUntil = time.Now().Add(overloadPause)
			g.mu.Unlock()
			return sendSeparately()
		}
		return o.reply, o.err
	case <-ctx.Done():
		if s.leave(m) {
			return Reply{}, silence(ctx, ctx.Err())
		}
		return Reply{}, fmt.Errorf("%w: %w", errUntried, ctx.Err())
	}
}

// join adds a member to the next request; g.mu is held.
func (g *gatherer) join(m *member) *sharedRequest {
	if s := g.next; s != nil && s.bytes+len(m.operation) > maxBytes {
		g.send(s)
	}
	s := g.next
	if s == nil {
		s = &sharedRequest{gatherer: g, ended: make(chan struct{})}
		g.next = s
		s.timer = time.AfterFunc(maxGatherDelay, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.send(s)
		})
	}
	s.members = append(s.members, m)
	s.bytes += len(m.operation) + 1
	if s.waiting++; len(s.members) == maxMembers {
		g.send(s)
	}
	return s
}

// finishRequest counts a request as returned, and sends the next one if no other is under way.
func (g *gatherer) finishRequest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay--; g.next != nil && g.underWay == 0 {
		g.send(g.next)
	}
}

// send sends the gathered members of a request, once; g.mu is held.
func (g *gatherer) send(s *sharedRequest) {
	if s.sent {
		return
	}
	s.sent, g.next = true, nil
	s.timer.Stop()
	if len(s.members) == 0 {
		close(s.ended)
		return
	}
	var ctx context.Context
	ctx, s.abort = context.WithCancel(context.Background())
	g.underWay++
	body := s.body()
	go func() {
		defer close(s.ended)
		defer s.abort()
		r, err := g.c.request(ctx, g.node, &Call{Method: http.MethodPost, Path: []string{"v1", "batch"}}, body, allowance{})
		s.deliver(&r, err)
		runtime.Gosched() // a caller with a reply often calls again at once, in time to share the next request
		g.finishRequest()
	}()
}

func (s *sharedRequest) body() []byte {
	body := make([]byte, 0, s.bytes+len(`{"operations":[]}`))
	body = append(body, `{"operations":[`...)
	for i, m := range s.members {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, m.operation...)
	}
	return append(body, "]}"...)
}

// leave removes the caller of a member, and reports whether the member was sent. If no caller is left, it aborts the
// request and waits until that is done, so that the outcome of each attempt is known.
func (s *sharedRequest) leave(m *member) (sent bool) {
	s.gatherer.mu.Lock()
	s.waiting--
	if !s.sent {
		s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
		s.gatherer.mu.Unlock()
		return false
	}
	last := s.waiting == 0
	s.gatherer.mu.Unlock()
	if last {
		s.abort()
		<-s.ended
	}
	return true
}

// deliver gives each member its own result. If a node rejects the request as a whole, because it has no batch route or
// a smaller limit, the members are sent separately.
func (s *sharedRequest) deliver(r *Reply, err error) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		switch refusal.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
			err = errSeparate
		case http.StatusForbidden:
			if refusal.Code == "" { // a proxy does not let the route through
				err = errSeparate
			}
		}
	}
	var body struct {
		Results []struct {
			Status   int
			Body     json.RawMessage
			Replayed bool
		}
	}
	if err == nil {
		if err = r.Decode(&body); err == nil && len(body.Results) != len(s.members) {
			err = errors.New("signalbox: a node's reply has another number of results")
		}
	}
	var overloaded *Refusal
	for i, m := range s.members {
		o := outcome{err: err}
		if err == nil {
			result := &body.Results[i]
			o.reply = *r
			o.reply.Status, o.reply.Body, o.reply.Replayed = result.Status, result.Body, result.Replayed
			if result.Status < 200 || result.Status >= 300 {
				refusal := s.gatherer.c.memberRefusal(&o.reply)
				switch {
				case refusal.Code == "overloaded":
					overloaded = refusal
				case refusal.Code == "not-applied" && overloaded != nil: // the node did not try it, because it was overloaded at an earlier member
					refusal = overloaded
				}
				o = outcome{err: refusal}
			}
		}
		m.result <- o
	}
}

// operation encodes the call as a member of a shared request, in the form of httpapi/v1's batch (docs/api-many.md).
func (k *Call) operation(body []byte) []byte {
	var b bytes.Buffer
	text := func(name, value string) {
		if value == "" {
			return
		}
		encoded, _ := json.Marshal(value) // a string can always be encoded
		b.WriteString(`,"` + name + `":`)
		b.Write(encoded)
	}
	b.WriteString(`{"op":"` + k.Operation.Name + `"`)
	text("semaphore", k.Operation.Semaphore)
	text("session", k.Operation.Session)
	text("key", k.Key)
	for name, values := range k.Query {
		if name == groupParameter {
			text(name, values[0])
			continue
		}
		b.WriteString(`,"` + name + `":` + values[0])
	}
	if inner := bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("{")), []byte("}")); len(inner) > 0 {
		b.WriteByte(',')
		b.Write(inner)
	}
	b.WriteByte('}')
	return b.Bytes()
}

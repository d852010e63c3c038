package calls

import (
	"context"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

// Stream is the body of a reply, which its reader gets while the node still sends it. For example, a node sends events
// as they happen. A Stream is for one goroutine, which must close it.
type Stream struct {
	Index uint64 // index of the state that the reply reflects; 0: unknown

	ctx         context.Context // of the HTTP request
	body        io.ReadCloser
	idleTimeout time.Duration
	timer       *time.Timer // cancels ctx: while open runs, after AttemptTimeout; while Read blocks, after idleTimeout
	end         func()      // cancels ctx
	endCall     func()      // ends the context that Open made for all attempts
}

// Open sends a GET to one node after another, as Caller.Do does, until a node replies with 200. It returns when the
// header of the reply has arrived; Read reads the body. The stream fails if no byte arrives for idleTimeout, when ctx
// ends, and when the Caller is closed.
func Open(ctx context.Context, c *Caller, path []string, query url.Values, idleTimeout time.Duration) (*Stream, error) {
	k := Call{Method: http.MethodGet, Path: path, Query: query}
	ctx, end := WithEither(ctx, c.ctx)
	for state := (retryState{}); ; {
		node, err := c.next(ctx, &state, &k)
		if err != nil || state.tooLong(ctx, c.cfg.GiveUpAfter) {
			defer end()
			return nil, state.giveUpError(ctx, &k)
		}
		a := allowance{began: time.Now(), total: c.cfg.AttemptTimeout}
		s, err := open(ctx, c, node, &k, a)
		if err == nil {
			c.nodes.MarkWorked(node, a.began)
			s.idleTimeout, s.endCall = idleTimeout, end
			s.timer.Stop()
			return s, nil
		}
		if err = c.judge(ctx, &state, &k, node, a, err); err != nil {
			end()
			return nil, err
		}
	}
}

// open makes one attempt at one node. It leaves s.timer running, which Open stops.
func open(ctx context.Context, c *Caller, node *nodes.Node, k *Call, a allowance) (_ *Stream, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{ctx: ctx, timer: time.AfterFunc(a.total, func() { cancel(errSilent) })}
	s.end = func() {
		s.timer.Stop()
		cancel(nil)
	}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	request, err := http.NewRequestWithContext(ctx, k.Method, "", nil)
	if err != nil {
		return nil, err
	}
	request.URL, request.Host = node.URL(k.Path, k.Query), ""
	c.setHeader(request, node, k, nil)
	request.Header.Set("Accept", "*/*")
	response, err := c.send(request)
	if err != nil {
		return nil, silence(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		r := Reply{Status: response.StatusCode, Node: node}
		if r.Body, err = io.ReadAll(io.LimitReader(response.Body, maxReply)); err != nil {
			return nil, silence(ctx, err)
		}
		return nil, c.newRefusal(response.Header, &r)
	}
	s.Index, _ = strconv.ParseUint(response.Header.Get("X-Signalbox-Index"), 10, 64)
	s.body = response.Body
	return s, nil
}

// Read reads from the body. It fails if it has waited for a byte for s.idleTimeout. The time between two calls of Read
// does not count, so a slow reader loses no stream.
func (s *Stream) Read(p []byte) (int, error) {
	s.timer.Reset(s.idleTimeout)
	n, err := s.body.Read(p)
	s.timer.Stop()
	if err != nil && err != io.EOF {
		err = silence(s.ctx, err)
	}
	return n, err
}

// Close ends the HTTP request.
func (s *Stream) Close() error {
	s.end()
	s.endCall()
	return s.body.Close()
}

// Follow yields a state, and yields it again after each change. It calls read once for each HTTP request. The first
// read gets k. Each later read gets k with the index of the state that was read before; a node holds this request until
// the state has another index, or until the wait ends. read sends the request, and returns the state and its index. An
// error of read is yielded last.
func Follow[State any](ctx context.Context, k Call, read func(k Call) (s State, index uint64, r Reply, err error)) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		var empty State
		k := k
		k.Query = maps.Clone(k.Query)
		if k.Query == nil {
			k.Query = url.Values{}
		}
		for early := 0; ; {
			s, index, r, err := read(k)
			if err != nil {
				yield(empty, err)
				return
			}
			seen := strconv.FormatUint(index, 10)
			if k.Query.Get("index") != seen {
				if early = 0; !yield(s, nil) {
					return
				}
			} else if early++; !r.Early() {
				early = 0
			} else if Sleep(ctx, BackOff(early)) != nil { // a node that is about to stop replies early
				yield(empty, context.Cause(ctx))
				return
			}
			k.Query.Del("min_index")
			k.Query.Set("index", seen)
			k.Listen = true
		}
	}
}

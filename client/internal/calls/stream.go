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

// Stream is the body of a reply that is read while it is sent. It is for one goroutine, which must close it.
type Stream struct {
	Index uint64 // index of the state that the reply reflects; 0: unknown

	ctx     context.Context
	body    io.ReadCloser
	quiet   time.Duration
	alarm   *time.Timer
	end     func() // ends the attempt
	endCall func()
}

// Open sends a GET, as Caller.Do does, and returns the reply's body as a stream. The stream fails if no byte arrives
// for the time quiet, when ctx ends, and when the Caller is closed.
func Open(ctx context.Context, c *Caller, path []string, query url.Values, quiet time.Duration) (*Stream, error) {
	k := Call{Method: http.MethodGet, Path: path, Query: query}
	ctx, end := WithEither(ctx, c.ctx)
	for t := (trial{}); ; {
		node, err := c.next(ctx, &t, &k)
		if err != nil || t.tooLong(ctx, c.cfg.GiveUpAfter) {
			defer end()
			return nil, t.givenUp(ctx, &k)
		}
		a := allowance{began: time.Now(), total: c.cfg.AttemptTimeout}
		s, err := open(ctx, c, node, &k, a)
		if err == nil {
			c.nodes.MarkWorked(node, a.began)
			s.quiet, s.endCall = quiet, end
			s.alarm.Stop()
			return s, nil
		}
		if err = c.judge(ctx, &t, &k, node, a, err); err != nil {
			end()
			return nil, err
		}
	}
}

func open(ctx context.Context, c *Caller, node *nodes.Node, k *Call, a allowance) (_ *Stream, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{ctx: ctx, alarm: time.AfterFunc(a.total, func() { cancel(errSilent) })}
	s.end = func() {
		s.alarm.Stop()
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

// Read reads from the body. It fails if no byte arrives for s.quiet; the time between two calls of Read does not count.
func (s *Stream) Read(p []byte) (int, error) {
	s.alarm.Reset(s.quiet)
	n, err := s.body.Read(p)
	s.alarm.Stop()
	if err != nil && err != io.EOF {
		err = silence(s.ctx, err)
	}
	return n, err
}

// Close ends the request.
func (s *Stream) Close() error {
	s.end()
	s.endCall()
	return s.body.Close()
}

// Follow yields a state, and yields it again after each change. The first call is k, and each later call waits for the
// next change. read makes the call, and returns the state with its index, from which the next call waits. If a node
// replies early with an unchanged index, Follow pauses. An error of read is yielded last.
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

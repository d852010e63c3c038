package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// replyBytes bounds a reply that the proxy has to read: a page of sessions may have some 30 MiB.
const replyBytes = 64 << 20

// hopByHop are the headers that concern one connection only, and two others: Accept-Encoding, since the proxy reads the
// replies, and Forwarded, which the client may have forged.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Accept-Encoding", "Forwarded"}

// forPages are the headers by which a browser lets the pages of another origin read a reply.
var forPages = []string{"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary"}

// copyFor returns a copy of the request with another query, as a GET if it is a HEAD.
func (a *routedRequest) copyFor(ctx context.Context, query string) *http.Request {
	out := a.r.Clone(ctx)
	for name := range strings.SplitSeq(a.r.Header.Get("Connection"), ",") {
		out.Header.Del(strings.TrimSpace(name))
	}
	for _, name := range hopByHop {
		out.Header.Del(name)
	}
	rewrite(&httputil.ProxyRequest{In: a.r, Out: out})
	out.URL.RawQuery = query
	if isSafe(out) { // several cells can't share a body, which has no meaning
		out.Body, out.GetBody, out.ContentLength = http.NoBody, nil, 0 // state: of this copy
	}
	if out.Method == http.MethodHead {
		out.Method = http.MethodGet
	}
	return out
}

// reply is the whole reply of a cell.
type reply struct {
	cell   int
	status int
	header http.Header
	body   []byte
}

// ask sends a request to a cell, and reads the reply.
func (t *table) ask(c *cells.Cell, r *http.Request) (*reply, error) {
	response, err := t.nodes[c.Number].RoundTrip(r)
	if err != nil {
		return nil, unserved(r, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytes+1))
	switch {
	case err != nil:
		return nil, unserved(r, &attemptError{err, true})
	case len(body) > replyBytes:
		return nil, exchange.LimitReached("reply", replyBytes, "A cell's part of the reply is larger than the proxy takes: ask with a smaller limit.")
	}
	return &reply{c.Number, response.StatusCode, response.Header, body}, nil
}

// askAll sends the request to all cells at the same time. It fails if the request to a cell fails. If a cell refuses the
// request, askAll sends this refusal to the client and returns no replies.
func (a *routedRequest) askAll(query string) ([]*reply, error) {
	all := a.table.All()
	replies, failed := make([]*reply, len(all)), make([]error, len(all))
	var asking sync.WaitGroup
	for i := range all {
		asking.Go(func() { replies[i], failed[i] = a.table.ask(&all[i], a.copyFor(a.r.Context(), query)) })
	}
	asking.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	for _, r := range replies {
		if r.status != http.StatusOK {
			a.relay(r)
			return nil, nil
		}
	}
	a.allowPages(replies)
	return replies, nil
}

// allowPages sends the headers for pages of another origin if all replies have the same. So a page may read a merged
// reply only if it may read each reply.
func (a *routedRequest) allowPages(replies []*reply) {
	if len(replies) == 0 {
		return
	}
	for _, name := range forPages {
		values := replies[0].header[name]
		if values != nil && !slices.ContainsFunc(replies, func(r *reply) bool { return !slices.Equal(r.header[name], values) }) {
			a.w.Header()[name] = values
		}
	}
}

// relay sends the reply of a cell.
func (a *routedRequest) relay(r *reply) {
	header := a.w.Header()
	for _, name := range append([]string{"Content-Type", "Retry-After", "Www-Authenticate", exchange.HeaderRequest}, forPages...) {
		if values := r.header[name]; values != nil {
			header[name] = values
		}
	}
	a.w.WriteHeader(r.status)
	_, _ = a.w.Write(r.body) // the client's matter
}

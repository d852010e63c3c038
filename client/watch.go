package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Watch yields a semaphore as it is, and again after each change of its permits,
// offset, leases or waiters: the newest state each time, so that of changes in quick
// succession only the last may be seen. Failures of nodes don't end it, as with any
// call. It ends with an error, ErrUnknownSemaphore once the semaphore is deleted or
// ctx's for example; or when the loop breaks.
func (c *Client) Watch(ctx context.Context, name string, opts ...ReadOption) iter.Seq2[*Semaphore, error] {
	return func(yield func(*Semaphore, error) bool) {
		k := semaphoreCall(http.MethodGet, name)
		k.query = readQuery(opts)
		for early := 0; ; {
			s, r, err := c.getSemaphore(ctx, name, k)
			if err != nil {
				yield(nil, err)
				return
			}
			seen := strconv.FormatUint(s.ModifiedIndex, 10)
			if k.query.Get("index") != seen {
				if early = 0; !yield(s, nil) {
					return
				}
			} else if early++; !r.early() {
				early = 0
			} else if sleep(ctx, backOff(early)) != nil { // a node that stops answers at once
				yield(nil, context.Cause(ctx))
				return
			}
			k.query = withIndex(k.query, seen)
			k.listen = true
		}
	}
}

func withIndex(query url.Values, index string) url.Values {
	next := url.Values{"index": {index}}
	for name, values := range query {
		if name != "index" && name != "min_index" {
			next[name] = values
		}
	}
	return next
}

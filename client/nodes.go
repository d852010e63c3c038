package client

import (
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxRetryAfter bounds, in seconds, how long a node is left alone.
const maxRetryAfter = 60

// node is one address.
type node struct {
	base      *url.URL
	notBefore time.Time // it asked to be left alone until then; guarded by nodes.mu
}

// nodes remembers which address works. Safe for concurrent use.
type nodes struct {
	mu      sync.Mutex
	list    []*node // never changed
	current int     // the one that worked last
}

// pick answers the node to ask next, and how long to leave it alone first: it is
// the working one or, after a failure, the one after it that may be asked soonest.
func (n *nodes) pick(now time.Time) (*node, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var soonest *node
	for i := range n.list {
		candidate := n.list[(n.current+i)%len(n.list)]
		if !candidate.notBefore.After(now) {
			return candidate, 0
		}
		if soonest == nil || candidate.notBefore.Before(soonest.notBefore) {
			soonest = candidate
		}
	}
	return soonest, soonest.notBefore.Sub(now)
}

// failed moves on from a node, unless another call has done so already.
func (n *nodes) failed(which *node, notBefore time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	which.notBefore = notBefore
	if n.list[n.current] == which {
		n.current = (n.current + 1) % len(n.list)
	}
}

// worked stays with a node.
func (n *nodes) worked(which *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	which.notBefore = time.Time{}
	for i, known := range n.list {
		if known == which {
			n.current = i
		}
	}
}

// url is where a path of the API, given as plain segments, is on this node. The
// segments are encoded each: a semaphore may be called "a/b", or "..", which has to
// be written so that nobody on the way takes it for the parent folder.
func (n *node) url(segments []string, query url.Values) *url.URL {
	u := *n.base
	plain, encoded := strings.Builder{}, strings.Builder{}
	plain.WriteString(n.base.Path)
	encoded.WriteString(n.base.EscapedPath())
	for _, segment := range segments {
		plain.WriteString("/" + segment)
		if strings.Trim(segment, ".") == "" {
			encoded.WriteString("/" + strings.ReplaceAll(segment, ".", "%2E"))
		} else {
			encoded.WriteString("/" + url.PathEscape(segment))
		}
	}
	u.Path, u.RawPath = plain.String(), encoded.String()
	u.RawQuery = query.Encode()
	return &u
}

// retryAfter reads the header of that name: seconds. A date is not expected from a
// node, and would need a common wall clock.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter)) * time.Second
}

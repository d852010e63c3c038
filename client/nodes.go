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

// suspicion is how much later than the others a suspect node is asked: as if it had
// asked to be left alone for so long.
const suspicion = 5 * time.Second

// node is one address.
type node struct {
	base *url.URL

	// Guarded by nodes.mu.
	notBefore time.Time // it asked to be left alone until then
	suspect   bool      // it left its latest request without a reply
}

// nodes remembers which address works. Safe for concurrent use.
type nodes struct {
	mu      sync.Mutex
	list    []*node // never changed
	current int     // the one that worked last
}

// pick returns the node to ask next, and how long to leave it alone first: the one
// that worked last, unless it failed since, asked to be left alone or is suspect.
// With elsewhere it begins at another one.
func (n *nodes) pick(now time.Time, elsewhere bool) (*node, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := n.current
	if elsewhere {
		first++
	}
	var best *node
	var pause, least time.Duration
	for i := range n.list {
		candidate := n.list[(first+i)%len(n.list)]
		alone := max(0, candidate.notBefore.Sub(now))
		cost := alone
		if candidate.suspect {
			cost += suspicion
		}
		if best == nil || cost < least {
			best, pause, least = candidate, alone, cost
		}
	}
	return best, pause
}

// failed moves on from a node, unless another call has done so already. silent
// makes it suspect; any other failure shows that something answers there.
func (n *nodes) failed(which *node, notBefore time.Time, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	which.notBefore, which.suspect = notBefore, silent
	if n.list[n.current] == which {
		n.current = (n.current + 1) % len(n.list)
	}
}

// worked stays with a node.
func (n *nodes) worked(which *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	which.notBefore, which.suspect = time.Time{}, false
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

package nodes

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/credentials"
)

// suspicion is a penalty for a suspect node: Pick treats it as if it had asked for a pause of that length.
const suspicion = 5 * time.Second

// Node is the address of one node.
type Node struct {
	base *url.URL      // without the user
	user *url.Userinfo // may be a token; nil: no user

	// Guarded by List.mu.
	notBefore time.Time // the end of its Retry-After, before which it gets no request
	suspect   bool      // it did not reply to its latest request
	failedAt  time.Time // when it last failed with a reply or an error
}

// List remembers which node works.
type List struct {
	mu      sync.Mutex
	nodes   []*Node // never changed
	current int     // index of the node that Pick prefers: the last node that worked or, once it has failed, the next node
}

// Parse reads base URLs: "http://n1:8701", or "n1:8701" for the same. A path stays part of every URL. A user and
// password are removed, so that no error shows them.
func Parse(addresses []string) (*List, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no addresses")
	}
	l := &List{}
	for _, text := range addresses {
		base, err := credentials.ParseAddress(text)
		if err != nil && strings.Contains(text, "@") {
			return nil, errors.New("an address with a user name is no URL") // don't show it, because it may have a password
		} else if err != nil {
			return nil, fmt.Errorf("address %q: %w", text, err)
		}
		if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
			if base.User != nil {
				base.User = nil
				text = base.String()
			}
			return nil, fmt.Errorf("address %q is not the base URL of a node", text)
		}
		base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/") // because a node has no route "//v1"
		n := &Node{base: base, user: base.User}
		base.User = nil
		l.nodes = append(l.nodes, n)
	}
	return l, nil
}

// Bases returns the base URLs with their users, in the order of the addresses.
func (l *List) Bases() (bases []*url.URL) {
	for _, n := range l.nodes {
		base := *n.base
		base.User = n.user
		bases = append(bases, &base)
	}
	return bases
}

// Hosts returns the nodes as host:port, with commas between.
func (l *List) Hosts() string {
	hosts := make([]string, len(l.nodes))
	for i, n := range l.nodes {
		hosts[i] = n.Host()
	}
	return strings.Join(hosts, ",")
}

// Len returns the number of nodes.
func (l *List) Len() int { return len(l.nodes) }

// Pick returns the node to ask next, and how long to pause before that. It prefers the current node, unless that node
// asked for a pause or is suspect. With elsewhere it prefers the node after the current node.
func (l *List) Pick(now time.Time, elsewhere bool) (*Node, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.current
	if elsewhere {
		first++
	}
	var best *Node
	var pause, leastCost time.Duration
	for i := range l.nodes {
		candidate := l.nodes[(first+i)%len(l.nodes)]
		ownPause := max(0, candidate.notBefore.Sub(now))
		cost := ownPause
		if candidate.suspect {
			cost += suspicion
		}
		if best == nil || cost < leastCost {
			best, pause, leastCost = candidate, ownPause, cost
		}
	}
	return best, pause
}

// MarkFailed records a failed request to a node. If it is the current node, the next node becomes the current node. Pick
// does not choose the failed node before notBefore. silent makes the node suspect; any other failure shows that a
// process replies there.
func (l *List) MarkFailed(node *Node, notBefore time.Time, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node.notBefore, node.suspect, node.failedAt = notBefore, silent, time.Time{}
	if !silent {
		node.failedAt = time.Now()
	}
	if l.nodes[l.current] == node {
		l.current = (l.current + 1) % len(l.nodes)
	}
}

// MarkWorked makes a node the current node, unless another attempt at it has failed since began. (One shared HTTP request
// can succeed for one call and fail for another.)
func (l *List) MarkWorked(node *Node, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if node.failedAt.After(began) {
		return
	}
	node.notBefore, node.suspect = time.Time{}, false
	l.current = slices.Index(l.nodes, node)
}

// Host returns the node's host and port.
func (n *Node) Host() string { return n.base.Host }

// String returns the base URL, without the user.
func (n *Node) String() string { return n.base.String() }

// User returns the user of the node's address, for Basic authentication; nil without one.
func (n *Node) User() *url.Userinfo { return n.user }

// URL returns the URL of an API path on this node; see Path.
func (n *Node) URL(segments []string, query url.Values) *url.URL {
	u := *n.base
	plain, encoded := path(segments)
	u.Path, u.RawPath = n.base.Path+plain, n.base.EscapedPath()+encoded
	u.RawQuery = query.Encode()
	return &u
}

// Path encodes each segment of a path and joins them.
func Path(segments []string) string {
	_, encoded := path(segments)
	return encoded
}

// path encodes each segment separately, because a semaphore may be called "a/b", or "..", which a proxy must not take
// for the parent folder.
func path(segments []string) (plain, encoded string) {
	for _, segment := range segments {
		plain += "/" + segment
		if strings.Trim(segment, ".") == "" {
			encoded += "/" + strings.ReplaceAll(segment, ".", "%2E")
		} else {
			encoded += "/" + url.PathEscape(segment)
		}
	}
	return plain, encoded
}

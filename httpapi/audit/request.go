package audit

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Request is what lines have of the request that asked for a change.
type Request struct {
	Remote string // the address of the client
	ID     string // as package exchange has named it
}

// Proxies are the ranges of addresses of proxies that name their clients truthfully.
type Proxies []netip.Prefix

// ParseProxies reads ranges such as 10.0.0.0/8, and addresses.
func ParseProxies(listed []string) (Proxies, error) {
	var p Proxies
	for _, text := range listed {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a range such as 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		p = append(p, prefix.Masked())
	}
	return p, nil
}

func (p Proxies) has(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// RemoteOf returns the address of the client. A trusted proxy names its own client in X-Forwarded-For or in
// Forwarded; of a chain the last address counts that is no trusted proxy. A proxy that sets one header may pass
// on the other as a client has made it up: if they name different clients, the address of the connection counts.
func (p Proxies) RemoteOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	at = at.Unmap()
	named := []netip.Addr{}
	for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
		if chain := r.Header[header]; len(chain) > 0 {
			named = append(named, p.clientOf(at, chain, header == "Forwarded"))
		}
	}
	if len(named) == 1 || len(named) == 2 && named[0] == named[1] {
		at = named[0]
	}
	return at.String()
}

// clientOf goes back through a chain of proxies, from the address of the connection to the first address that
// is no trusted proxy.
func (p Proxies) clientOf(at netip.Addr, chain []string, forwarded bool) netip.Addr {
	hops := strings.Split(strings.Join(chain, ","), ",")
	for i := len(hops) - 1; i >= 0 && p.has(at); i-- {
		before, ok := hop(hops[i], forwarded)
		if !ok {
			break // not an address: the proxy counts
		}
		at = before
	}
	return at
}

// hop reads one address of a chain: bare, with a port, or in Forwarded for="…".
func hop(text string, forwarded bool) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if forwarded {
		text = forPart(text)
	}
	if address, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return address.Unmap(), true
	}
	address, err := netip.ParseAddrPort(text)
	return address.Addr().Unmap(), err == nil
}

// forPart returns the value of for in one element of Forwarded.
func forPart(element string) string {
	for part := range strings.SplitSeq(element, ";") {
		if name, value, _ := strings.Cut(strings.TrimSpace(part), "="); strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// requestKey is the key of a Request in a context.
type requestKey struct{}

// With returns a context with a request.
func With(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// Of returns the request of a context, with empty members without one.
func Of(ctx context.Context) Request {
	r, _ := ctx.Value(requestKey{}).(Request)
	return r
}

package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// hosts are the names under which this node may be called. A page whose own host
// name leads to this node (DNS rebinding) is of the same origin to the browser, but
// its requests still carry that name: this check is what stops them.
type hosts struct {
	any       bool // every name; the check is off
	addresses bool // every literal address: the node listens on all of its machine's
	names     map[string]bool
}

// newHosts takes Config.Hosts.
func newHosts(listed []string) *hosts {
	h := &hosts{any: len(listed) == 0, names: map[string]bool{"localhost": true}}
	for _, name := range listed {
		address, err := netip.ParseAddr(name)
		h.any = h.any || name == "*"
		h.addresses = h.addresses || err == nil && address.IsUnspecified()
		h.names[plainHost(name)] = true
	}
	return h
}

// plainHost is a host as it is compared: without the dot of the root, in lower
// case, an address in its one spelling.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return host
}

// has reports whether a request's Host is this node's. Its port does not count: a
// page can't choose another name by it. A request without a Host comes from no
// browser.
func (h *hosts) has(host string) bool {
	if h.any || host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	name := plainHost(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if address, err := netip.ParseAddr(name); err == nil && (h.addresses || address.IsLoopback()) {
		return true
	}
	return h.names[name]
}

// refuseWrongHost refuses a request to a name that is not this node's, on every
// route and before anything else looks at it.
func (h *Handler) refuseWrongHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if host := c.Request().Host; !h.hosts.has(host) {
			return newProblem("wrong-host", "This node is not called "+quoted(host)+
				". Use a name or an address of it; an operator adds names with --allow-host.")
		}
		return next(c)
	}
}

// quoted is a client's text as a reply shows it.
func quoted(text string) string { return `"` + strings.ToValidUTF8(ellipsis(text), "") + `"` }

// refuseForeign refuses a changing request that a browser sends for a page of
// another origin. Such a request needs no CORS to be carried out (a form's POST).
// Browsers name the page's origin, or say at least how it relates to this node
// (Sec-Fetch-Site). A read is let through: it changes nothing, the browser keeps its
// reply from the page, and a link to this node from another site stays usable.
func (h *Handler) refuseForeign(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			return next(c)
		}
		listed := false
		for _, origin := range r.Header["Origin"] {
			if !h.ownOrigin(origin, r.Host) {
				return errOrigin
			}
			listed = listed || h.listedOrigin(origin)
		}
		for _, site := range r.Header["Sec-Fetch-Site"] {
			if site != "same-origin" && site != "none" && !listed {
				return errOrigin
			}
		}
		return next(c)
	}
}

// listedOrigin reports whether an operator has listed an origin.
func (h *Handler) listedOrigin(origin string) bool {
	return slices.Contains(h.cfg.CORS, "*") || slices.Contains(h.cfg.CORS, origin)
}

func (h *Handler) ownOrigin(origin, host string) bool {
	if h.listedOrigin(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

package callback

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

type entry struct {
	name   string       // in lower case; "" for addresses
	prefix netip.Prefix // addresses
	port   uint16       // 0: for a URL the scheme's port, for a resolved name any port
}

// ports has the port of each scheme that a URL may have.
var ports = map[string]uint16{"http": 80, "https": 443}

// allowList is the hosts that may be called.
type allowList []entry

// parseAllow reads entries of the form HOST[:PORT]. HOST is a name, an address or a range of addresses such as
// 10.1.0.0/16; an IPv6 address before a port is in brackets.
func parseAllow(entries []string) (allowList, error) {
	var list allowList
	for _, text := range entries {
		e, err := parseEntry(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not HOST[:PORT]: %w", text, err)
		}
		list = append(list, e)
	}
	return list, nil
}

func parseEntry(text string) (e entry, err error) {
	host := text
	if _, isAddress := parseRange(text); !isAddress {
		if at := strings.LastIndexByte(text, ':'); at >= 0 && !strings.HasSuffix(text, "]") {
			port, err := strconv.ParseUint(text[at+1:], 10, 16)
			if err != nil || port == 0 {
				return e, errors.New("a port is a number from 1 to 65535")
			}
			host, e.port = text[:at], uint16(port)
		}
	}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		var closed bool
		if host, closed = strings.CutSuffix(inner, "]"); !closed || !strings.Contains(host, ":") {
			return e, errors.New("brackets are for IPv6 addresses")
		}
	}
	if prefix, ok := parseRange(host); ok {
		e.prefix = prefix
		return e, nil
	}
	e.name = strings.ToLower(host)
	if !validName(e.name) {
		return e, errors.New("the host is neither a name nor an address")
	}
	return e, nil
}

func parseRange(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), addr.Zone() == ""
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err == nil && !prefix.Addr().Is4In6()
}

// validName reports whether a text is the name of a host and no resolver could take it for an address: some resolvers
// read 127.1, 0x7f000001 and 2130706433 as 127.0.0.1.
func validName(name string) bool {
	if len(name) == 0 || len(name) > 253 {
		return false
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

// hasHost reports whether a URL may name this host and port.
func (l allowList) hasHost(host string, port, usual uint16) bool {
	host = strings.ToLower(host)
	addr, err := netip.ParseAddr(host)
	for _, e := range l {
		if e.portIs(port, usual) && (e.name != "" && e.name == host || err == nil && e.contains(addr)) {
			return true
		}
	}
	return false
}

// hasAddress reports whether we may dial an address to which a listed name was resolved: if the address is public, or
// the list has the address itself with this port.
func (l allowList) hasAddress(addr netip.Addr, port uint16) bool {
	addr = addr.Unmap()
	for _, e := range l {
		if e.contains(addr) && (e.port == 0 || e.port == port) {
			return true
		}
	}
	return isPublic(addr)
}

func (e *entry) portIs(port, usual uint16) bool {
	if e.port == 0 {
		return port == usual
	}
	return port == e.port
}

func (e *entry) contains(addr netip.Addr) bool {
	return e.name == "" && addr.Zone() == "" && e.prefix.Contains(addr.Unmap())
}

// special are unicast ranges that are not public: addresses of this host, its site or a carrier's network, addresses for
// tests and documents, and IPv6 addresses with an IPv4 address inside.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// internet6 has all public IPv6 addresses.
var internet6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// isPublic reports whether the whole Internet reaches an address.
func isPublic(addr netip.Addr) bool {
	if addr.Is6() && !internet6.Contains(addr) {
		return false
	}
	return addr.Zone() == "" && !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(addr) })
}

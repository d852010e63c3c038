package memnet

import "time"

// Cut stops what flows from one host to another, that way only: bytes under way
// and sent later are held until Heal, and no dial between the two completes.
func (n *Network) Cut(from, to string) {
	n.change(func(c *condition) { c.cut = true }, link{from, to})
}

// Heal undoes Cut that way. The bytes that were held arrive now.
func (n *Network) Heal(from, to string) {
	n.change(func(c *condition) { c.cut = false }, link{from, to})
}

// Partition cuts both ways between two hosts.
func (n *Network) Partition(a, b string) {
	n.change(func(c *condition) { c.cut = true }, link{a, b}, link{b, a})
}

// Isolate cuts a host off from every other one, both ways.
func (n *Network) Isolate(name string) {
	n.change(func(c *condition) { c.cut = true }, n.around(name)...)
}

// Rejoin heals every link of a host.
func (n *Network) Rejoin(name string) {
	n.change(func(c *condition) { c.cut = false }, n.around(name)...)
}

// Delay makes bytes that one host sends another from now on arrive that much
// later, in order. A dial takes the delays of both directions. Zero ends it.
func (n *Network) Delay(from, to string, by time.Duration) {
	n.change(func(c *condition) { c.delay = by }, link{from, to})
}

// Reset breaks the connections between two hosts: both ends fail at once with
// ECONNRESET, and the bytes under way are lost. New ones may be dialled.
func (n *Network) Reset(a, b string) {
	for _, w := range n.wiresWhere(func(l link) bool { return l == link{a, b} || l == link{b, a} }) {
		w.reset()
	}
}

// Crash ends a host as far as the network sees it: its listeners close and its
// connections are reset. The host may listen and dial again.
func (n *Network) Crash(name string) {
	for _, l := range n.listenersOf(name) {
		_ = l.Close() // never fails
	}
	for _, w := range n.wiresWhere(func(l link) bool { return l.from == name || l.to == name }) {
		w.reset()
	}
}

// change applies edit to the links, present connections included.
func (n *Network) change(edit func(*condition), links ...link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		c := n.links[l]
		edit(&c)
		n.links[l] = c
		for w := range n.wires {
			w.follow(l, c)
		}
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// around lists both directions between a host and each other one.
func (n *Network) around(name string) []link {
	n.mu.Lock()
	defer n.mu.Unlock()
	var links []link
	for other := range n.hosts {
		if other != name {
			links = append(links, link{name, other}, link{other, name})
		}
	}
	return links
}

func (n *Network) wiresWhere(match func(link) bool) []*wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*wire
	for w := range n.wires {
		if match(w.link) {
			found = append(found, w)
		}
	}
	return found
}

func (n *Network) listenersOf(name string) []*listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*listener
	for _, l := range n.listeners {
		if l.host.name == name {
			found = append(found, l)
		}
	}
	return found
}

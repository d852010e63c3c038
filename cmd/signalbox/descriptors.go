package main

import "github.com/hashicorp/go-hclog"

// ownDescriptors is what a node keeps for itself of the files that its process may
// have open: its folder, its peers, those kept for probes.
const ownDescriptors = 240

// fitConnections lowers --max-connections to what the process may have open, shared
// by the nodes in it, and says so: connections that can't be accepted would lock
// out probes and peers too.
func (c *config) fitConnections(most uint64, log hclog.Logger) {
	nodes := uint64(max(1, c.nodesHere))
	room := most / nodes
	if room >= uint64(c.requests.connections)+ownDescriptors {
		return
	}
	fits := max(ownDescriptors, int(room)) - ownDescriptors
	fits = max(fits, 16)
	log.Warn("the limit of open files does not allow --max-connections; raise it (ulimit -n, LimitNOFILE)", "limit", most,
		"needed", nodes*(uint64(c.requests.connections)+ownDescriptors), "max-connections", c.requests.connections, "taken", fits)
	c.requests.connections = fits
}

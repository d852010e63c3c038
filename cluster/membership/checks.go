package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
)

// CheckMember returns an error for text that cannot be a node id, and for an address that other nodes cannot dial.
func CheckMember(id, address string) error {
	if id == "" || len(id) > maxMemberText || strings.ContainsAny(id, " \t\r\n,=/\x00") {
		return fmt.Errorf("%w: %q is no id of a node", outcome.ErrMemberInvalid, id)
	}
	if err := peer.CheckReachable(address); err != nil {
		return fmt.Errorf("%w: %w", outcome.ErrMemberInvalid, err)
	}
	return nil
}

// checkMove returns an error if the node with that id cannot get the address. server is the node's present entry in the
// configuration, or zero if the node is no member.
//
// Until its new address is committed, a voter whose address changes may be unreachable. So the change needs a majority
// among the other voters. A leader can't move itself: it transfers leadership, and the next leader dials the new
// address.
func (m *Changes) checkMove(ctx context.Context, servers []raft.Server, server raft.Server, id, address string) error {
	voting := server.ID != "" && server.Suffrage == raft.Voter
	if voting {
		err := m.checkRemoval(servers, id)
		lastVoter := errors.Is(err, outcome.ErrLastVoter)
		switch {
		case err != nil && !lastVoter:
			return err
		case id == m.self && !lastVoter:
			return m.abdicate(ctx)
		}
	}
	answer, err := m.calls.Ask(ctx, id, address) // the port refuses a copy of another node's folder, and a node of another cluster
	switch {
	case err != nil: // %v hides the error from errors.Is, so that Call does not try again
		return fmt.Errorf("%w: %s was not found at %s, start it there first: %v", outcome.ErrMemberInvalid, id, address, err)
	case voting && answer.State == probe.Empty:
		return fmt.Errorf("%w: %s at %s has an empty folder, and comes in by itself", outcome.ErrMemberInvalid, id, address)
	}
	return nil
}

// checkRemoval returns an error for a removal that Raft could not commit. Once a removal is in the log it cannot be
// taken back, and it needs a majority of the voters that stay.
func (m *Changes) checkRemoval(servers []raft.Server, id string) error {
	var stay, up int
	var silent []string
	seen := m.watch.All()
	for _, v := range Voters(servers) {
		voter := string(v.ID)
		if voter == id {
			continue
		}
		stay++
		if voter == m.self || seen[voter].Up() {
			up++
		} else {
			silent = append(silent, voter)
		}
	}
	switch {
	case stay == 0:
		return outcome.ErrLastVoter
	case up <= stay/2:
		return fmt.Errorf("%w: without %s there would be no majority: no reply came from %s",
			outcome.ErrMemberInvalid, id, strings.Join(silent, ", "))
	}
	return nil
}

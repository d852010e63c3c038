package cluster

import "context"

// AddMember makes the node with that id and address a member and blocks until it
// has caught up and has its vote. A member that is there already gets the address.
// Any node may be asked; the leader does it. It is safe to repeat.
//
// Errors: ErrCatchingUp when the member is in but has no vote yet after 10 s, or
// when ctx ended: it gets it by itself. ErrMemberInvalid, ErrNoLeader, ctx's cause.
func (n *Node) AddMember(ctx context.Context, id, address string) error {
	if err := checkMember(id, address); err != nil {
		return err
	}
	return n.leaderCall(ctx, probeRequest{Kind: probeAdd, ID: id, Address: address})
}

// RemoveMember takes a node out of the cluster for good and tells it; a leader
// hands over first. One that is no member is no error. It blocks until that is
// committed. Any node may be asked; the leader does it. It is safe to repeat.
//
// Errors: ErrLastVoter; ErrMemberInvalid when those who stay would have no majority
// that is up; ErrNoTarget when the leader finds nobody to hand over to; ErrNoLeader;
// ctx's cause.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	return n.leaderCall(ctx, probeRequest{Kind: probeRemove, ID: id})
}

// TransferLeadership makes the voting member with that id the leader, or, if id is
// empty, one that trails least. It tries once and blocks until the old leader leads
// no more, at most 3 s. Naming the present leader does nothing.
//
// Errors: ErrNoTarget, ErrNoLeader, Raft's reason when the target did not take over,
// ctx's cause.
func (n *Node) TransferLeadership(ctx context.Context, id string) error {
	return n.leaderCall(ctx, probeRequest{Kind: probeTransfer, ID: id})
}

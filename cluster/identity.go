package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// identity is what a node says of itself on each stream, and what it holds against
// what others say. Safe for concurrent use.
type identity struct {
	node        string
	address     string // as advertised
	folder      store.FolderID
	incarnation uint64 // another one after each start

	// known returns the id of the member that is known to have that address, with
	// its mark (see markAddress), or "". nil: none is known.
	known func(address string) string
	// admitted returns the folder that was admitted under a node id, if one was.
	// nil: none was.
	admitted func(node string) (store.FolderID, bool)
	// neighbours hears how calls of listed peers end. nil: there are none.
	neighbours *neighbours

	mu       sync.Mutex
	standing standing
	cluster  fsm.ClusterID
}

// bind sets the cluster's id.
func (i *identity) bind(cluster fsm.ClusterID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.standing, i.cluster = standingBound, cluster
}

// stand sets the standing of a node without a cluster's id.
func (i *identity) stand(s standing) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.standing, i.cluster = s, fsm.ClusterID{}
}

// bound returns the cluster's id, zero as long as it isn't known.
func (i *identity) bound() fsm.ClusterID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cluster
}

// hello returns what this node says at the beginning of a stream.
func (i *identity) hello(kind StreamKind, target string) hello {
	i.mu.Lock()
	defer i.mu.Unlock()
	return hello{
		lowest: preambleVersion, highest: preambleVersion, kind: kind, standing: i.standing, cluster: i.cluster,
		folder: i.folder, incarnation: i.incarnation, node: i.node, target: target, address: i.address,
	}
}

// upgradedBit is set in the first byte of ids that a leader drew for a cluster
// which was formed before clusters had ids, and clear in all others.
const upgradedBit = 0x80

// upgraded reports whether a cluster was formed before clusters had ids.
func upgraded(id fsm.ClusterID) bool { return id[0]&upgradedBit != 0 }

// drawUpgradedID returns an id for a cluster that was formed without one.
func drawUpgradedID() (id fsm.ClusterID) {
	_, _ = rand.Read(id[:]) // never fails
	id[0] |= upgradedBit
	return id
}

// formedID returns the id of the cluster that nodes with these folders form: each
// of them comes to the same one, and it is as random as the folders' ids are.
func formedID(folders map[string]store.FolderID) (id fsm.ClusterID) {
	sum := sha256.New()
	for _, node := range slices.Sorted(maps.Keys(folders)) {
		_, _ = fmt.Fprintf(sum, "%q %v\n", node, folders[node]) // never fails
	}
	copy(id[:], sum.Sum(nil))
	id[0] &^= upgradedBit
	return id
}

// judge returns why a stream with these two hellos must not be, or 0. Both sides
// come to the same verdict.
//
// An empty node may only probe and be probed: that is how it comes in. One that
// does not know its cluster's id yet, since its folder is of an older release, may
// speak with its like; a node that knows the id of such a cluster may call it, so
// that it receives the entry with the id, but not be called by it, so that it
// can't lead, or vote out, nodes which know better.
func judge(kind StreamKind, dialler, acceptor *hello) refusal {
	bound, other := dialler, acceptor
	if bound.standing != standingBound {
		bound, other = acceptor, dialler
	}
	switch {
	case dialler.standing == standingEmpty || acceptor.standing == standingEmpty:
		if kind != StreamProbe {
			return refusedKind // ordinary, while it comes in
		}
		return 0
	case bound.standing != standingBound: // both are of an older release
		return 0
	case other.standing == standingBound:
		if dialler.cluster != acceptor.cluster {
			return refusedCluster
		}
		return 0
	case !upgraded(bound.cluster):
		return refusedCluster
	case kind != StreamProbe && dialler != bound:
		return refusedUnbound
	}
	return 0
}

// receive judges the hello of a node that has dialled this one. detail is for the
// dialler and for the log.
func (i *identity) receive(theirs *hello, from string) (reason refusal, detail string) {
	ours := i.hello(theirs.kind, "")
	reason = judge(theirs.kind, theirs, &ours)
	switch {
	case reason != 0:
	case theirs.target != "" && theirs.target != i.node:
		return refusedNode, fmt.Sprintf("this is node %q, not %q", i.node, theirs.target)
	case theirs.node == i.node && !theirs.sameProcess(&ours):
		return refusedIncarnation, fmt.Sprintf("node id %q is this node's own, at %s; another node came with it from %s", i.node, i.address, from)
	default:
		return i.checkFolder(theirs)
	}
	return reason, describeMismatch(reason, &ours, i.address, theirs, from)
}

// accept judges the hello of a node that this one has dialled, as node target with
// the folder mark ("" and zero when not known).
func (i *identity) accept(kind StreamKind, target string, mark store.FolderID, theirs *hello, address string) (reason refusal, detail string) {
	ours := i.hello(kind, target)
	reason = judge(kind, &ours, theirs)
	switch {
	case reason != 0:
	case target != "" && theirs.node != target:
		return refusedNode, fmt.Sprintf("at %s is node %q, not %q", address, theirs.node, target)
	case mark != (store.FolderID{}) && theirs.folder != mark && theirs.standing != standingEmpty:
		return refusedFolder, describeFolder(theirs, mark)
	default:
		return i.checkFolder(theirs)
	}
	return reason, describeMismatch(reason, &ours, i.address, theirs, address)
}

// checkFolder holds a node's folder against the one that was admitted.
func (i *identity) checkFolder(theirs *hello) (refusal, string) {
	if i.admitted == nil || theirs.standing == standingEmpty {
		return 0, ""
	}
	if folder, is := i.admitted(theirs.node); is && folder != theirs.folder {
		return refusedFolder, describeFolder(theirs, folder)
	}
	return 0, ""
}

func describeFolder(theirs *hello, admitted store.FolderID) string {
	return fmt.Sprintf("node %q was admitted with folder %v, and came with folder %v: empty that folder, and it rejoins",
		theirs.node, admitted, theirs.folder)
}

// describeMismatch explains a verdict of judge with both sides' addresses.
func describeMismatch(reason refusal, ours *hello, ourAddress string, theirs *hello, theirAddress string) string {
	what := "the nodes belong to different clusters"
	switch reason {
	case refusedUnbound:
		what = "a node that does not know its cluster's id can't open this kind of stream"
	case refusedKind:
		what = "a node with an empty folder takes no part yet"
	}
	return fmt.Sprintf("%s: %s, and %s", what, ours.who(ourAddress), theirs.who(theirAddress))
}

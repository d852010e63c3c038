package membership

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
)

// roster is the latest configuration that a node has.
type roster interface {
	// memberAt returns the id of the member that is known to have that address, with its
	// mark (see peer.MarkAddress), or "".
	memberAt(address string) string
	// admittedFolder returns the folder that was admitted under a node id, if one was.
	admittedFolder(node string) (peer.ID, bool)
	// admits reports whether a node with that id may have a certificate: see
	// [peer.Identity].
	admits(node string) bool
}

// identity is a node's description of itself on each stream. It judges the other side's
// description by it. Safe for concurrent use.
type identity struct {
	node        string
	address     string // as advertised
	folder      peer.ID
	incarnation uint64 // another one after each start
	roster
	*evidence

	mu       sync.Mutex
	standing peer.Standing
	cluster  fsm.ClusterID
}

// bind sets the cluster's id.
func (i *identity) bind(cluster fsm.ClusterID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.standing, i.cluster = peer.StandingBound, cluster
}

// stand sets the standing of a node without a cluster's id.
func (i *identity) stand(s peer.Standing) {
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

// Hello implements [peer.Identity].
func (i *identity) Hello(kind peer.StreamKind, target string) peer.Hello {
	i.mu.Lock()
	defer i.mu.Unlock()
	return peer.Hello{
		Kind: kind, Standing: i.standing, Cluster: peer.ID(i.cluster),
		Folder: peer.ID(i.folder), Incarnation: i.incarnation, Node: i.node, Target: target, Address: i.address,
	}
}

// upgradedBit is set in the first byte of ids that a leader drew for a cluster
// which was formed before clusters had ids, and clear in all others.
const upgradedBit = 0x80

// Upgraded reports whether a cluster was formed before clusters had ids.
func Upgraded(id fsm.ClusterID) bool { return id[0]&upgradedBit != 0 }

// DrawUpgradedID returns an id for a cluster that was formed without one.
func DrawUpgradedID() (id fsm.ClusterID) {
	_, _ = rand.Read(id[:]) // never fails
	id[0] |= upgradedBit
	return id
}

// formedID returns the id of the cluster that nodes with these folders form: each
// of them computes the same id, which is as random as the folders' ids.
func formedID(folders map[string]peer.ID) (id fsm.ClusterID) {
	sum := sha256.New()
	for _, node := range slices.Sorted(maps.Keys(folders)) {
		_, _ = fmt.Fprintf(sum, "%q %v\n", node, folders[node]) // never fails
	}
	copy(id[:], sum.Sum(nil))
	id[0] &^= upgradedBit
	return id
}

// The id of a recovered cluster shows from which cluster it was made: its first half is
// the first half of the id before, but for upgradedBit, and its second half is this mark, a number
// that is higher by one each time, and four random bytes.
const recoveredMark = "RC"

// RecoveredID draws the id of a cluster that is made of the rest of another cluster; zero
// for a cluster without an id.
func RecoveredID(before fsm.ClusterID) (id fsm.ClusterID) {
	_, _ = rand.Read(id[:]) // never fails
	if before != (fsm.ClusterID{}) {
		copy(id[:8], before[:8])
	}
	id[0] &^= upgradedBit
	copy(id[8:], recoveredMark)
	binary.BigEndian.PutUint16(id[10:], recoveries(before)+1)
	return id
}

// recoveries returns how often a cluster with that id was recovered.
func recoveries(id fsm.ClusterID) uint16 {
	if string(id[8:10]) != recoveredMark { // or a chance of 1 in 65536, which does no harm
		return 0
	}
	return binary.BigEndian.Uint16(id[10:])
}

// succeeds reports whether a cluster was made of the rest of another cluster, directly or
// by further recoveries. For a cluster without an id that can't be excluded.
func succeeds(cluster, before fsm.ClusterID) bool {
	if before == (fsm.ClusterID{}) {
		return recoveries(cluster) > 0
	}
	before[0] &^= upgradedBit
	return bytes.Equal(cluster[:8], before[:8]) && recoveries(cluster) > recoveries(before)
}

// judge returns why a stream with these two hellos must not be, or 0. Both sides
// come to the same verdict.
//
// An empty node may only probe and be probed: so it joins. A node that
// does not know its cluster's id yet, since its folder is of an older release, may
// speak with nodes like it; a node that knows the id of such a cluster may call it, so
// that it receives the entry with the id, but not be called by it, so that it
// can't lead, or vote out, nodes which know better.
func judge(kind peer.StreamKind, dialler, acceptor *peer.Hello) peer.Refusal {
	bound, other := dialler, acceptor
	if bound.Standing != peer.StandingBound {
		bound, other = acceptor, dialler
	}
	switch {
	case dialler.Standing == peer.StandingEmpty || acceptor.Standing == peer.StandingEmpty:
		if kind != peer.StreamProbe {
			return peer.RefusedKind // ordinary, while it comes in
		}
		return 0
	case bound.Standing != peer.StandingBound: // both are of an older release
		return 0
	case other.Standing == peer.StandingBound:
		if dialler.Cluster != acceptor.Cluster {
			return peer.RefusedCluster
		}
		return 0
	case !Upgraded(fsm.ClusterID(bound.Cluster)):
		return peer.RefusedCluster
	case kind != peer.StreamProbe && dialler != bound:
		return peer.RefusedUnbound
	}
	return 0
}

// Admits implements [peer.Identity].
func (i *identity) Admits(node string) bool { return i.admits(node) }

// Known implements [peer.Identity].
func (i *identity) Known(address string) string { return i.memberAt(address) }

// Receive implements [peer.Identity].
func (i *identity) Receive(remote *peer.Hello, from string) (reason peer.Refusal, detail string) {
	local := i.Hello(remote.Kind, "")
	reason = judge(remote.Kind, remote, &local)
	switch {
	case reason != 0:
	case remote.Target != "" && remote.Target != i.node:
		return peer.RefusedNode, fmt.Sprintf("this is node %q, not %q", i.node, remote.Target)
	case remote.Node == i.node && !remote.SameProcess(&local):
		return peer.RefusedIncarnation, fmt.Sprintf("node id %q is this node's own, at %s; another node came with it from %s", i.node, i.address, from)
	default:
		return i.checkFolder(remote)
	}
	if reason == peer.RefusedCluster && remote.Target == i.node {
		i.noteCaller(remote, from)
	}
	return reason, describeMismatch(reason, &local, i.address, remote, from)
}

// Accept implements [peer.Identity].
func (i *identity) Accept(kind peer.StreamKind, target string, mark peer.ID, remote *peer.Hello, address string) (reason peer.Refusal, detail string) {
	local := i.Hello(kind, target)
	reason = judge(kind, &local, remote)
	switch {
	case reason != 0:
	case target != "" && remote.Node != target:
		return peer.RefusedNode, fmt.Sprintf("at %s is node %q, not %q", address, remote.Node, target)
	case mark != (peer.ID{}) && remote.Folder != mark && remote.Standing != peer.StandingEmpty:
		return peer.RefusedFolder, describeFolder(remote, mark)
	default:
		return i.checkFolder(remote)
	}
	return reason, describeMismatch(reason, &local, i.address, remote, address)
}

// checkFolder compares a node's folder with the admitted folder.
func (i *identity) checkFolder(remote *peer.Hello) (peer.Refusal, string) {
	if remote.Standing == peer.StandingEmpty {
		return 0, ""
	}
	if folder, ok := i.admittedFolder(remote.Node); ok && folder != remote.Folder {
		return peer.RefusedFolder, describeFolder(remote, folder)
	}
	return 0, ""
}

func describeFolder(remote *peer.Hello, admitted peer.ID) string {
	return fmt.Sprintf("node %q was admitted with folder %v, and came with folder %v: empty that folder, and it rejoins",
		remote.Node, admitted, remote.Folder)
}

// describeMismatch explains a verdict of judge with both sides' addresses.
func describeMismatch(reason peer.Refusal, local *peer.Hello, localAddress string, remote *peer.Hello, remoteAddress string) string {
	text := "the nodes belong to different clusters"
	switch reason {
	case peer.RefusedUnbound:
		text = "a node that does not know its cluster's id can't open this kind of stream"
	case peer.RefusedKind:
		text = "a node with an empty folder takes no part yet"
	}
	return fmt.Sprintf("%s: %s, and %s", text, local.Describe(localAddress), remote.Describe(remoteAddress))
}

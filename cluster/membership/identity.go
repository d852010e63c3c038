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

type roster interface {
	// memberAt returns the id of the member at an address, or "". The address may have a mark (see peer.MarkAddress).
	memberAt(address string) string
	// admittedFolder returns the id of the folder with which a node was admitted. ok is false if no folder was admitted
	// for it, or if the latest configuration is not known.
	admittedFolder(node string) (peer.ID, bool)
	// admits reports whether the port accepts a node's certificate: see [peer.Identity].
	admits(node string) bool
}

// identity says what this node tells about itself on each stream, and which other nodes it accepts. Safe for concurrent
// use.
type identity struct {
	node        string
	address     string // as advertised
	folder      peer.ID
	incarnation uint64 // random at each start
	roster
	*evidence

	mu       sync.Mutex
	standing peer.Standing
	cluster  fsm.ClusterID
}

func (i *identity) bind(cluster fsm.ClusterID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.standing, i.cluster = peer.StandingBound, cluster
}

// bindNone records that the node belongs to no cluster because its folder is empty.
func (i *identity) bindNone() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.standing, i.cluster = peer.StandingEmpty, fsm.ClusterID{}
}

// bound returns the cluster's id, or zero while the node belongs to no cluster.
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

// formedID returns the id of the cluster that nodes with these folders form. Each of the nodes computes the same id.
// This id is as random as the ids of the folders.
func formedID(folders map[string]peer.ID) (id fsm.ClusterID) {
	sum := sha256.New()
	for _, node := range slices.Sorted(maps.Keys(folders)) {
		_, _ = fmt.Fprintf(sum, "%q %v\n", node, folders[node]) // never fails
	}
	copy(id[:], sum.Sum(nil))
	return id
}

// The id of a recovered cluster shows from which cluster it was made: the first 8 bytes of the lost cluster's id, this
// mark, the number of recoveries so far (2 bytes) and 4 random bytes.
const recoveredMark = "RC"

// RecoveredID draws the id of a cluster that is recovered from a folder of the lost cluster.
func RecoveredID(before fsm.ClusterID) (id fsm.ClusterID) {
	_, _ = rand.Read(id[:]) // never fails
	copy(id[:8], before[:8])
	copy(id[8:], recoveredMark)
	binary.BigEndian.PutUint16(id[10:], recoveries(before)+1)
	return id
}

// recoveries returns how often the cluster with that id was recovered.
func recoveries(id fsm.ClusterID) uint16 {
	if string(id[8:10]) != recoveredMark { // by chance, 1 in 65536 random ids has the mark, which does no harm
		return 0
	}
	return binary.BigEndian.Uint16(id[10:])
}

// succeeds reports whether cluster was recovered from before, directly or in several recoveries.
func succeeds(cluster, before fsm.ClusterID) bool {
	return bytes.Equal(cluster[:8], before[:8]) && recoveries(cluster) > recoveries(before)
}

// judge returns why a stream between two nodes must be refused, or 0. Both sides reach the same result.
//
// A node with an empty folder may only send and receive probes, with which it enters a cluster.
func judge(kind peer.StreamKind, dialler, acceptor *peer.Hello) peer.Refusal {
	empty := dialler.Standing == peer.StandingEmpty || acceptor.Standing == peer.StandingEmpty
	switch {
	case empty && kind != peer.StreamProbe:
		return peer.RefusedKind // usual while a node comes into its cluster
	case !empty && dialler.Cluster != acceptor.Cluster:
		return peer.RefusedCluster
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

// checkFolder refuses a node whose folder is not the folder with which its id was admitted.
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

// describeMismatch explains a refusal by judge and names both addresses.
func describeMismatch(reason peer.Refusal, local *peer.Hello, localAddress string, remote *peer.Hello, remoteAddress string) string {
	text := "the nodes belong to different clusters"
	if reason == peer.RefusedKind {
		text = "a node with an empty folder takes no part yet"
	}
	return fmt.Sprintf("%s: %s, and %s", text, local.Describe(localAddress), remote.Describe(remoteAddress))
}

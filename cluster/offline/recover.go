package offline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/store/folder"
)

// indexJump is the distance from the folder's last entry to the first index of the recovered cluster. It puts the new
// indexes above all indexes of lost entries that clients have seen.
const indexJump = 1 << 32

// Config says how to recover a folder. All fields but UpToDamage and Security are needed.
type Config struct {
	Folder string
	// Peers are the members of the new cluster, including the folder's node, which gets the only vote. The other
	// members get a vote after they have joined with empty folders.
	Peers      []probe.Peer
	UpToDamage bool // recover from the sound entries before the first damage
	Network    peer.Network
	Security   peer.Security
}

// Plan is a recovery that is ready to be carried out. Its folder is locked until Close.
type Plan struct {
	Report *Report
	Others []Asked // all other nodes that were asked, with their replies

	config      Config
	view        *store.View
	remains     *remains
	asking      []probe.Peer
	incarnation uint64 // the same when Prepare and Carry ask; otherwise nodes would take the second question for one of a copy of this node
}

var (
	// ErrAlive refuses a recovery while other nodes reply.
	ErrAlive = errors.New("other nodes reply")
	// ErrDamaged refuses a folder that is damaged, unless Config.UpToDamage is set.
	ErrDamaged = errors.New("the folder is damaged")
)

// Prepare reads the folder, and asks all members of its last configuration and all peers for their state. The only
// change that it may make is to complete an interrupted earlier recovery. It holds the whole state in memory, and waits
// up to ten seconds for replies.
//
// Errors: ErrAlive, ErrDamaged, the errors of Inspect, and errors if the folder has no state to recover.
func Prepare(ctx context.Context, c Config) (_ *Plan, err error) {
	view, err := store.Look(c.Folder, true)
	if err != nil {
		return nil, err
	}
	p := &Plan{config: c, view: view, remains: look(view, 0), incarnation: rand.Uint64() | 1}
	p.Report = p.remains.report
	if err = p.check(); err == nil {
		p.asking = p.nodes()
		p.Others, err = p.ask(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, view.Close())
	}
	return p, nil
}

// check returns an error if the folder has no state to recover, or if the peers lack the folder's node.
func (p *Plan) check() error {
	node := p.Report.Folder.Node
	switch {
	case p.remains.err != nil:
		return p.remains.err
	case p.config.address(node) == "":
		return fmt.Errorf("the list of peers lacks node %q, whose folder it is", node)
	case len(p.Report.Damage) > 0 && !p.config.UpToDamage:
		return fmt.Errorf("%w: %s", ErrDamaged, strings.Join(p.Report.Damage, "; "))
	case p.remains.last < 2: // the first entry is the first configuration
		return fmt.Errorf("data folder %s holds no state: this node has taken no entry of a leader, or none that is sound", p.config.Folder)
	}
	return nil
}

// address returns the address of a peer, or "" if there is no peer with that id.
func (c Config) address(id string) string {
	for _, p := range c.Peers {
		if p.ID == id {
			return p.Address
		}
	}
	return ""
}

// nodes returns all nodes to ask: all peers, and the members of the folder's last configuration.
func (p *Plan) nodes() []probe.Peer {
	nodes := slices.Clone(p.config.Peers)
	for _, m := range p.Report.Members {
		if known := (probe.Peer{ID: m.ID, Address: m.Address}); !slices.Contains(nodes, known) {
			nodes = append(nodes, known)
		}
	}
	return nodes
}

// ask asks all nodes, and fails with ErrAlive if one of them prevents the recovery.
func (p *Plan) ask(ctx context.Context) ([]Asked, error) {
	nodes, err := p.config.ask(ctx, p.Report.Folder, p.incarnation, p.asking)
	if err != nil {
		return nil, err
	}
	var alive []string
	for _, a := range nodes {
		if !a.Silent {
			alive = append(alive, fmt.Sprintf("%s at %s: %s", a.ID, a.Address, a.Found))
		}
	}
	if len(alive) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrAlive, strings.Join(alive, "; "))
	}
	self := p.Report.Folder.Node
	return slices.DeleteFunc(nodes, func(a Asked) bool { return a.ID == self }), nil
}

// Last returns the index and the term of the last entry in the recovered state.
func (p *Plan) Last() (index, term uint64) { return p.remains.last, p.remains.term }

// Recovered is the result of a recovery.
type Recovered struct {
	Cluster string // the new id
	Index   uint64 // the first index of the new cluster
	Kept    string // the path of the old content
}

// Carry carries out the recovery. It may be called once. It first asks all nodes again, since some time may have passed
// until a person confirmed the plan. On return the new content is durable. After an error the old content is in force,
// unless the error says that the next start completes the recovery. The disk needs room for another snapshot of the
// state.
func (p *Plan) Carry(ctx context.Context) (Recovered, error) {
	if _, err := p.ask(ctx); err != nil {
		return Recovered{}, err
	}
	before, err := fsm.ParseClusterID(p.Report.Folder.Cluster)
	if err != nil {
		return Recovered{}, fmt.Errorf("the cluster of the data folder: %w", err)
	}
	cluster := membership.RecoveredID(before)
	made := Recovered{Cluster: cluster.String(), Index: p.remains.last + indexJump}
	state, err := p.remains.feed.Recovered(cluster, made.Index)
	if err != nil {
		return Recovered{}, err
	}
	made.Kept, err = p.view.Replace(store.Replacement{
		ClusterID: made.Cluster, Index: made.Index, Term: max(p.remains.term, p.Report.Folder.Term), State: state,
		Configuration: p.configuration,
	})
	return made, err
}

// configuration returns the configuration of the new cluster. The folder's node gets the only vote, and its address
// gets the folder's id, so that no other folder may take part as that node.
func (p *Plan) configuration(folder folder.ID) (c raft.Configuration) {
	for _, member := range p.config.Peers {
		server := raft.Server{ID: raft.ServerID(member.ID), Address: raft.ServerAddress(member.Address), Suffrage: raft.Nonvoter}
		if member.ID == p.Report.Folder.Node {
			server.Suffrage, server.Address = raft.Voter, peer.MarkAddress(member.Address, peer.ID(folder))
		}
		c.Servers = append(c.Servers, server)
	}
	return c
}

// Close releases the lock on the folder.
func (p *Plan) Close() error { return p.view.Close() }

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// open binds the port and begins the node's life in its cluster. What it has opened when it fails, abort
// closes.
func (n *Node) open() error {
	self := n.config.self()
	err := n.life.settle()
	if err != nil {
		return err
	}
	n.port, err = OpenPeerPort(PeerPortConfig{
		Network: n.config.Network, Bind: n.config.Bind, Advertise: self.Address, Identity: n.life.identity, Logger: n.log,
	})
	if err != nil {
		return err
	}
	return n.life.begin()
}

// openRaft starts Raft on the store, which is bootstrapped if it is empty.
func (n *Node) openRaft() error {
	config, err := RaftConfig(raft.ServerID(n.config.NodeID), n.config.RaftMultiplier, n.config.Logger)
	if err != nil {
		return err
	}
	config.NotifyCh = n.raftNews
	layer, err := n.port.OpenRaft()
	if err != nil {
		return err
	}
	n.transport = NewTransport(TransportConfig{
		Layer: layer, Acks: n.acks, Logger: n.config.Logger, Multiplier: n.config.RaftMultiplier, Fault: n.config.fault,
		Stalled: func() bool { return n.config.Store.StuckFor() > n.times().of(stallLimit) },
	})
	s := n.config.Store
	if s.Empty() {
		err := raft.BootstrapCluster(config, s.Logs(), s.Stable(), s.Snapshots(), n.transport, firstConfiguration(n.config.Peers))
		if err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
	}
	n.raft, err = raft.NewRaft(config, n.life.watched(), s.Logs(), s.Stable(), s.Snapshots(), n.transport)
	if err != nil {
		return fmt.Errorf("start raft: %w", cmp.Or(n.machine.unread, err))
	}
	return nil
}

// work starts the node's goroutines, once Raft runs.
func (n *Node) work() {
	self := raft.ServerID(n.config.NodeID)
	n.leadership.raft = n.raft
	n.confirmer = &confirmer{
		machine: n.machine,
		rounds:  NewReadRounds(readSource(n.raft, self, n.acks, n.established), n.times().of(readRoundTimeout)),
	}
	server := &forwardServer{
		log: n.log, requests: n.requests, waits: n.waits, admits: n.machine.admits, epoch: time.Now(),
		established: n.leading, read: n.confirmer.confirm,
	}
	n.port.Handle(StreamForward, server.serve)
	go n.leadership.drain(n.raftNews) // ends when Raft has, and the channel is closed
	n.running.Go(func() { n.leadership.run(n.stopping) })
	n.running.Go(func() { n.router.run(n.stopping) })
	n.running.Go(n.watchLeader)
	n.running.Go(func() { n.requests.pulse.run(n.stopping) })
	n.running.Go(n.takeSnapshots)
	n.running.Go(func() { n.history.run(n.stopping) })
}

// watchLeader tells the router when Raft follows another leader.
func (n *Node) watchLeader() {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, is := o.Data.(raft.LeaderObservation)
		return is
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)
	n.router.look() // what it has missed so far
	for {
		select {
		case <-seen:
			n.router.look()
		case <-n.stopping.Done():
			return
		}
	}
}

// takeSnapshots takes a snapshot whenever the machine has asked for one.
func (n *Node) takeSnapshots() {
	for {
		select {
		case <-n.snapshotDue:
		case <-n.stopping.Done():
			return
		}
		err := await(n.stopping, n.raft.Snapshot())
		switch {
		case err == nil, n.stopping.Err() != nil, errors.Is(err, raft.ErrNothingNewToSnapshot):
		default: // the next is asked for after as many bytes again
			n.log.Warn("no snapshot was taken", "error", err)
		}
	}
}

// openLocal makes the lane to this node's own proposer.
func (n *Node) openLocal(r *reign) lane {
	return &localLane{
		reign: r, requests: n.requests, current: n.leading, admits: n.machine.admits, confirm: n.confirmer.confirm, ended: make(chan struct{}),
	}
}

// openRemote makes the lane to another node.
func (n *Node) openRemote(conn net.Conn, same func() bool, term uint64) lane {
	return openLink(n.log, conn, term, same, n.requests, n.waits)
}

// dialForward opens a stream for commands to another node.
func (n *Node) dialForward(ctx context.Context, address string) (net.Conn, error) {
	return n.port.Dial(ctx, StreamForward, address)
}

//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/store"
)

// We compare Signalbox with a bare loop: an Echo route that gives each request to hashicorp/raft over the nodes' log
// store, and a machine that counts. The loop batches as the library does, with the settings that were fastest.

type bareMachine struct{ count atomic.Int64 }

func (m *bareMachine) Apply(*raft.Log) any { return m.count.Add(1) }

func (m *bareMachine) Snapshot() (raft.FSMSnapshot, error) { return bareSnapshot{}, nil }

func (m *bareMachine) Restore(r io.ReadCloser) error { return r.Close() }

type bareSnapshot struct{}

func (bareSnapshot) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (bareSnapshot) Release()                             {}

// startBare starts three bare nodes on loopback and returns the address of the
// leader's route.
func startBare(b *testing.B) string {
	b.Helper()
	const size = 3
	var servers []raft.Server
	var transports []*raft.NetworkTransport
	for i := range size {
		transport, err := raft.NewTCPTransport("127.0.0.1:0", nil, 3, 2*time.Second, io.Discard)
		must(b, err)
		b.Cleanup(func() { transport.Close() })
		transports = append(transports, transport)
		servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprint("b", i)), Address: transport.LocalAddr()})
	}
	var nodes []*raft.Raft
	for i := range size {
		nodes = append(nodes, startBareNode(b, servers[i].ID, transports[i]))
	}
	must(b, nodes[0].BootstrapCluster(raft.Configuration{Servers: servers}).Error())
	return serveBare(b, bareLeader(b, nodes))
}

func startBareNode(b *testing.B, id raft.ServerID, transport raft.Transport) *raft.Raft {
	b.Helper()
	stores, err := store.Open(store.Options{Folder: b.TempDir(), NodeID: string(id), Journal: true})
	must(b, err)
	b.Cleanup(func() { stores.Close() })
	config := raft.DefaultConfig()
	config.LocalID = id
	config.BatchApplyCh = true
	config.MaxAppendEntries = 1024
	config.NoLegacyTelemetry = true
	// On a busy machine the bare loop must not lose its leader, since elections are not measured.
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 10*time.Second, 10*time.Second, 10*time.Second
	config.Logger = hclog.NewNullLogger()
	node, err := raft.NewRaft(config, &bareMachine{}, stores.Logs(), stores.Stable(), raft.NewInmemSnapshotStore(), transport)
	must(b, err)
	b.Cleanup(func() {
		if err := node.Shutdown().Error(); err != nil {
			b.Error(err)
		}
	})
	return node
}

func bareLeader(b *testing.B, nodes []*raft.Raft) *raft.Raft {
	b.Helper()
	elected := make(chan *raft.Raft, len(nodes))
	for _, node := range nodes {
		go func() {
			if <-node.LeaderCh() {
				elected <- node
			}
		}()
	}
	select {
	case leader := <-elected:
		return leader
	case <-time.After(time.Minute):
		b.Fatal("the bare loop has no leader")
		return nil
	}
}

func serveBare(b *testing.B, leader *raft.Raft) string {
	b.Helper()
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.POST("/count", func(c echo.Context) error {
		command, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		applied := leader.Apply(command, time.Minute)
		if err := applied.Error(); err != nil {
			return err
		}
		return c.JSON(http.StatusOK, map[string]any{"count": applied.Response()})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	server := &http.Server{Handler: e}
	go server.Serve(listener)
	b.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

package cluster

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// crashedLogs fail every write, as the logs of a process that is killed before its writes.
type crashedLogs struct {
	raft.LogStore
	crashed *atomic.Bool
}

func (l crashedLogs) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l crashedLogs) StoreLogs(entries []*raft.Log) error {
	if l.crashed.Load() {
		return errors.New("the process is gone")
	}
	return l.LogStore.StoreLogs(entries)
}

// TestCrashInsideBootstrap: nodes that end before their bootstrap or between the two writes of their bootstrap,
// the term and the first entry, take part in the first start when they are back,
// whether the others wait for them or have gone on.
func TestCrashInsideBootstrap(t *testing.T) {
	for _, gone := range []struct {
		name        string
		nodes, gone int
	}{{"one of one", 1, 1}, {"one of three", 3, 1}, {"two of three", 3, 2}, {"all of three", 3, 3}} {
		t.Run(gone.name, func(t *testing.T) {
			lifeBubble(t, gone.nodes, func(t *testing.T, c *lifeNodes) {
				var crashed atomic.Bool
				victims := c.all[:gone.gone]
				c.bolt = true
				c.wrap = func(id string) func(raft.LogStore) raft.LogStore {
					return func(below raft.LogStore) raft.LogStore {
						if slices.ContainsFunc(victims, func(n *testNode) bool { return n.id == id }) {
							return crashedLogs{below, &crashed}
						}
						return below
					}
				}
				crashed.Store(true)
				for _, n := range c.all {
					c.beginOrCrash(n)
				}
				folders := map[*testNode]string{}
				c.until("one ends", func() bool {
					return slices.ContainsFunc(victims, func(n *testNode) bool { return c.fatal(n.id) != nil })
				})
				for _, n := range victims {
					folders[n] = n.store.Path()
					if n.up {
						c.kill(n)
					}
					c.must(n.store.Close())
				}
				crashed.Store(false)
				for _, n := range victims {
					var err error
					n.store, err = store.Open(store.Options{NodeID: n.id, Folder: folders[n], Journal: true})
					c.must(err)
					c.begin(n)
				}
				c.ready(c.all...)
				c.semaphore("db", 1)
				for _, n := range c.all {
					c.do(n, fsm.Up{Name: "db", Count: 1}, fsm.OK)
				}
			})
		})
	}
}

// beginOrCrash starts a node whose start may fail: one without peers bootstraps at
// once, the others later.
func (c *lifeNodes) beginOrCrash(n *testNode) {
	c.t.Helper()
	if len(c.all) > 1 {
		c.begin(n)
		return
	}
	c.openStore(n)
	config := Config{NodeID: n.id, Bind: n.id + ":8711", Network: c.net.Host(n.id), Store: n.store}
	if _, err := Start(c.t.Context(), config); err != nil {
		c.failed(n.id, err)
	}
}

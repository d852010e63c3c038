package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// A cluster of one node, in memory. The parts are closed in reverse order.
func ExampleStart() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	folder, err := store.OpenEphemeral("n1")
	if err != nil {
		log.Fatal(err)
	}
	defer folder.Close()
	node, err := cluster.Start(ctx, cluster.Config{NodeID: "n1", Bind: "127.0.0.1:0", Store: folder})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)

	// Do holds the command until there is a leader, for some seconds.
	put := fsm.PutSemaphore{Name: "db", Permits: fsm.Change[int64]{Given: true, Value: 3}}
	reply, err := node.Do(ctx, calls.Call{Command: put})
	switch {
	case errors.Is(err, outcome.ErrOutcomeUnknown):
		log.Fatal("it may have been applied: ", err)
	case err != nil:
		log.Fatal("it was not applied: ", err)
	}
	fmt.Println(reply.Code, reply.Created)

	node.View(func(m *fsm.Machine) {
		db, _ := m.Semaphore("db")
		fmt.Println("available:", db.Available)
	})
	// Output:
	// ok true
	// available: 3
}

package fsm_test

import (
	"bytes"
	"fmt"

	"github.com/signalbox/signalbox/fsm"
)

// A log of two entries: the first one makes a semaphore and two sessions, the second one
// lets both sessions ask for the only permit, and the first one give it back. A machine
// restored from a snapshot between the entries ends in the same state.
func ExampleMachine() {
	setUp := fsm.EncodeEntry(1000, [][]byte{ // at 1,000 ms of cluster time
		fsm.Envelope{}.Encode(fsm.CreateSemaphore{Name: "db", Permits: 1}),
		fsm.Envelope{}.Encode(fsm.OpenSession{Session: 7, TTLMS: 30_000}),
		fsm.Envelope{}.Encode(fsm.OpenSession{Session: 8, TTLMS: 30_000}),
	})
	work := fsm.EncodeEntry(2000, [][]byte{
		fsm.Envelope{}.Encode(fsm.Acquire{Session: 7, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}),
		fsm.Envelope{}.Encode(fsm.Acquire{Session: 8, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}),
		fsm.Envelope{}.Encode(fsm.Release{Session: 7, Name: "db"}),
	})

	m := fsm.New()
	m.Apply(1, setUp)
	var snapshot bytes.Buffer
	if err := m.Freeze().Write(&snapshot); err != nil {
		fmt.Println(err)
	}
	applied := m.Apply(2, work)
	for _, command := range applied.Commands {
		fmt.Println(command.Op, command.Result.Code)
	}
	for _, conclusion := range applied.Conclusions {
		lease := conclusion.Result.Grants[0]
		fmt.Printf("session %d has waited, and holds %d of %s with token %d\n",
			conclusion.Result.Session, lease.Count, lease.Semaphore, lease.Token)
	}

	restored, err := fsm.Restore(&snapshot)
	if err != nil {
		fmt.Println(err)
		return
	}
	restored.Apply(2, work)
	fmt.Println("same state:", restored.Hash() == m.Hash())
	// Output:
	// acquire ok
	// acquire waiting
	// release ok
	// session 8 has waited, and holds 1 of db with token 2
	// same state: true
}

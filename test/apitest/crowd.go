package apitest

import (
	"fmt"
	"strings"

	"github.com/signalbox/signalbox/fsm"
)

// Open opens a session and returns its id.
func (a *API) Open(ttl string) string {
	a.Helper()
	return a.Must(201, "POST /v1/sessions", `{"ttl":"`+ttl+`"}`).Member("session")
}

// Begin applies commands that prepare a test, many in one entry.
func (a *API) Begin(commands ...fsm.Command) {
	a.Helper()
	a.Node.Set(func() {
		for len(commands) > 0 {
			n := min(len(commands), 500)
			var encoded [][]byte
			for _, c := range commands[:n] {
				encoded = append(encoded, fsm.Envelope{}.Encode(c))
			}
			for i, r := range a.Node.Apply(encoded...).Commands {
				if r.Result.Code != fsm.OK && r.Result.Code != fsm.Waiting {
					a.Fatalf("%T: %v", commands[i], r.Result.Code)
				}
			}
			commands = commands[n:]
		}
	})
}

// LongName is a name of 512 bytes, of which JSON writes most as two.
func LongName(i int) string { return fmt.Sprintf("%s%05d", strings.Repeat(`"`, 507), i) }

// Crowd makes many requests that each wait for the same 64 semaphores of long names,
// all of them held by the session with the id 1.
func (a *API) Crowd(requests int) {
	var commands []fsm.Command
	var wants []fsm.Want
	for i := range fsm.MaxMembers {
		commands = append(commands, fsm.CreateSemaphore{Name: LongName(i)})
		wants = append(wants, fsm.Want{Semaphore: LongName(i), Count: 1})
	}
	for i := range wants { // so that each of them can be waited for
		commands = append(commands, fsm.Up{Name: wants[i].Semaphore, Count: 1})
	}
	holder := uint64(1)
	commands = append(commands, fsm.OpenSession{Session: holder, TTLMS: 3_600_000}, fsm.AcquireMany{Session: holder, Wants: wants, Mode: fsm.All})
	metadata := []fsm.Pair{{Key: "k", Value: strings.Repeat(`"`, 1000)}}
	for i := range requests {
		id := uint64(i + 2)
		commands = append(commands, fsm.OpenSession{Session: id, TTLMS: 3_600_000, Metadata: metadata},
			fsm.AcquireMany{Session: id, Wants: wants, Mode: fsm.All})
	}
	a.Begin(commands...)
}

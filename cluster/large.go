package cluster

import (
	"sync"

	"github.com/signalbox/signalbox/fsm"
)

// largeRecords is from how many records on a session is noted in largeSessions.
const largeRecords = 64

// largeSessions knows which sessions have much, so that a leader puts few of their
// ends, and of their acquires, into one entry. It is kept beside the state: who proposes a command must not
// wait for an entry that applies. What it knows is that of the last entry applied.
// Safe for concurrent use.
type largeSessions struct{ records sync.Map }

// deliver takes in what an entry did, in the apply goroutine.
func (l *largeSessions) deliver(state *fsm.Machine, entry *fsm.Applied) {
	for i := range entry.Commands {
		id := entry.Commands[i].Result.Session
		if id == 0 {
			continue
		}
		if has := state.SessionRecords(id); has >= largeRecords {
			l.records.Store(id, has)
		} else {
			l.records.Delete(id)
		}
	}
	for i := range entry.Effects {
		if entry.Effects[i].Kind == fsm.EffectSessionEnded {
			l.records.Delete(entry.Effects[i].Session)
		}
	}
}

// restored begins anew with a state that came from a snapshot, in the apply
// goroutine.
func (l *largeSessions) restored(state *fsm.Machine) {
	l.records.Clear()
	state.LargeSessions(largeRecords, func(id uint64, records int) { l.records.Store(id, records) })
}

// cost returns what a command costs an entry.
func (l *largeSessions) cost(c fsm.Command) int {
	records := 0
	if session := fsm.CostlySession(c); session != 0 {
		if has, known := l.records.Load(session); known {
			records = has.(int)
		}
	}
	return fsm.Cost(c, records)
}

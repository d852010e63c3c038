package waiting

import (
	"bytes"
	"context"
	"testing"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

func TestText(t *testing.T) {
	alice := map[string]string{"host": "ci-7", "pid": "42", "user": "alice", "command": "make"}
	holder := signalbox.Holder{Session: "5", Metadata: alice, HeldFor: time.Minute}
	waiters := []signalbox.Waiter{{Session: "6", Position: 1}, {Session: "7", Position: 2}}
	for want, s := range map[string]signalbox.Semaphore{
		"waiting for 2 of db: 1 available": {Available: 1},
		"waiting for 2 of db, at place 2 of 9: held by alice@ci-7 pid 42 command=make (session 5) for 1m": {
			Holders: []signalbox.Holder{holder}, HolderCount: 1, Waiters: waiters, WaiterCount: 9},
		"waiting for 2 of db: held by session 8 for 1s, and by 3 more": {
			Holders: []signalbox.Holder{{Session: "8", HeldFor: time.Second}}, HolderCount: 4, Waiters: waiters[:1], WaiterCount: 200},
		"waiting for 2 of db, at place 2 of 9: paused: drill": {Paused: "drill", Holders: []signalbox.Holder{holder}, Waiters: waiters, WaiterCount: 9},
		"waiting for 2 of db: 3 returning, the next in 4s": {Window: time.Minute, Returning: 3, NextReturnIn: 4 * time.Second,
			Holders: []signalbox.Holder{holder}, HolderCount: 1},
		"waiting for 2 of db": {NoTotal: true, Groups: "request", Holders: []signalbox.Holder{holder}, HolderCount: 1},
		"waiting for 2 of db, at place 3 of its group: Group a uses 1 of its 1.": {Groups: "request", Holders: []signalbox.Holder{holder}, HolderCount: 1, WaiterCount: 7,
			Waiters: []signalbox.Waiter{{Session: "7", Group: "a", Position: 3, Reason: "Group a uses 1 of its 1."}}},
	} {
		s.Name = "db"
		if got := text(&s, 2, func(w *signalbox.Waiter) bool { return w.Session == "7" }); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestNoTerminal: if a program reads the output, it gets no line of Show.
func TestNoTerminal(t *testing.T) {
	var b bytes.Buffer
	stop := Show(t.Context(), &b, func(context.Context) (string, error) {
		t.Error("it asks")
		return "", nil
	})
	if stop(); b.Len() != 0 {
		t.Errorf("%q", b.String())
	}
}

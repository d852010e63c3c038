package exchange_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// TestSessionsOfCommands: the audit log shows the session and the group of each command that names
// one.
func TestSessionsOfCommands(t *testing.T) {
	makes := map[fsm.Op]bool{fsm.OpOpenSession: true, fsm.OpOpenHolder: true, fsm.OpAcquireOnce: true, fsm.OpDown: true} // or names it later
	seen := map[fsm.Op]bool{}
	for _, command := range []fsm.Command{
		fsm.StartTerm{}, fsm.RaiseLevel{}, fsm.RaiseTokens{}, fsm.NoticeDone{}, fsm.PutSemaphore{}, fsm.CreateSemaphore{}, fsm.DeleteSemaphore{}, fsm.Up{}, fsm.Down{}, fsm.SetValue{}, fsm.GroupPut{}, fsm.FreeLost{},
		fsm.OpenSession{}, fsm.RestoreSession{}, fsm.EndSession{}, fsm.Renew{Renewals: []fsm.Renewal{{Session: 7}}},
		fsm.Acquire{}, fsm.AcquireOnce{}, fsm.AcquireMany{}, fsm.Release{}, fsm.ResizeLease{}, fsm.RevokeLease{},
		fsm.ListAdd{}, fsm.ListRemove{}, fsm.ListDeliver{},
		fsm.OpenHolder{}, fsm.ItemPut{}, fsm.ItemAcquire{}, fsm.ItemRelease{}, fsm.ItemDelete{}, fsm.ItemDeleteAll{},
	} {
		op := command.Op()
		seen[op] = true
		filled := reflect.New(reflect.TypeOf(command)).Elem()
		filled.Set(reflect.ValueOf(command))
		want := uint64(0)
		if member := filled.FieldByName("Session"); member.IsValid() && !makes[op] {
			member.SetUint(7)
			want = 7
		}
		if op == fsm.OpRenew {
			want = 7
		}
		if got := fsm.SessionOf(filled.Interface().(fsm.Command)); got != want {
			t.Errorf("%v: session %d, not %d", op, got, want)
		}
		if member := filled.FieldByName("Group"); member.IsValid() {
			member.SetString("acme")
			if got := exchange.GroupIn(filled.Interface().(fsm.Command)); got != "acme" {
				t.Errorf("%v: group %q", op, got)
			}
		}
	}
	for op := fsm.Op(1); !strings.HasPrefix(op.String(), "operation "); op++ {
		if !seen[op] {
			t.Errorf("%v is not in this test", op)
		}
	}
}

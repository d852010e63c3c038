package probe

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/signalbox/signalbox/cluster/election"
)

// TestMessagesAreForEver: the names of members, kinds, states and codes on a probe stream,
// and its framing. A line may be added, and members to a message, never changed.
func TestMessagesAreForEver(t *testing.T) {
	hash := StateHash{Index: 300, Hash: [16]byte{0x11, 15: 0x12}}
	request := &Request{Kind: Ask, From: "n1", ID: "n2", Address: "n2:8711", Level: 3, State: &hash,
		Elect: &election.Question{From: "n1", Lost: election.Leader{Process: election.Process{Node: "n3", Incarnation: 1 << 62}, Term: 6}, Term: 5, Index: 300}}
	reply := &Reply{Elect: &election.Reply{Agrees: true, Better: true, Leads: true}, Term: 7, Cluster: "c1", Code: "changed", Error: "why not", Answer: &Answer{
		Node: "n1", Incarnation: 1 << 63, Peers: "n1:8711,n2:8711", State: Live, Leader: "n2", LeaderAddress: "n2:8711", Term: 6, Knows: 2, Commit: 301,
		Applied: 302, Configuration: 17, Member: true, Draining: true, StorageLow: true, StorageSpent: true, Hashes: []StateHash{hash}, Common: &hash,
		Cluster: "c2", Folder: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Forms: "c3", Restored: true,
	}}
	for _, message := range []any{*request, *reply, *reply.Answer} {
		for i := range reflect.ValueOf(message).NumField() {
			if reflect.ValueOf(message).Field(i).IsZero() {
				t.Errorf("the sample has no %s", reflect.TypeOf(message).Field(i).Name)
			}
		}
	}
	var now bytes.Buffer
	for _, message := range []any{request, reply, &Request{}, &Reply{Answer: &Answer{}}} {
		var wire bytes.Buffer
		must(t, write(&wire, message))
		fmt.Fprintf(&now, "%x %s\n", wire.Bytes()[:4], wire.Bytes()[4:])
	}
	fmt.Fprintf(&now, "kinds %s\nstates %s\ncodes %s\n", []Kind{Ask, Rejoin, Add, Remove, Transfer, Removed, Raise, Elect}, []State{Empty, Formed, Live},
		slices.Sorted(maps.Keys(codes)))
	golden, err := os.ReadFile("testdata/messages.golden")
	must(t, err)
	if now.String() != string(golden) {
		t.Errorf("messages are\n%s, and were\n%s", now.String(), golden)
	}
}

// TestMessagesAreRead: a message is read as what was written.
func TestMessagesAreRead(t *testing.T) {
	var wire bytes.Buffer
	hash := StateHash{Index: 300, Hash: [16]byte{0x11, 15: 0x12}}
	want := Request{Kind: Raise, From: "n1", ID: "n2", Address: "n2:8711", Level: 3, State: &hash}
	must(t, write(&wire, &want))
	var got Request
	if err := read(&wire, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, error %v", got, err)
	}
}

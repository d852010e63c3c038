package raftlib

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/test/hostile"
	"github.com/signalbox/signalbox/test/memnet"
)

// hostileMessages are what no peer says to Raft. The first byte is the kind of a message; a
// body is MessagePack.
func hostileMessages() map[string]string {
	const appends, vote, snapshot, timeout, preVote = "\x00", "\x01", "\x02", "\x03", "\x04"
	deep := strings.Repeat("\x91", 50_000)
	all := map[string]string{
		"an unknown kind": "\x63", "kind 255": "\xff", "text": "GET / HTTP/1.1\r\n\r\n", "garbage": strings.Repeat("\xa5", 10_000), "never used bytes": appends + strings.Repeat("\xc1", 1000),
		"a snapshot of a negative size": snapshot + "\x82\xa4Size\xd3\xff\xff\xff\xff\xff\xff\xff\xff\xa4Data", "a number for a message": vote + "\x07", "a text for a message": timeout + "\xa1x",
		"a term of a text": preVote + "\x81\xa4Term\xa1x", "a term of -1": vote + "\x81\xa4Term\xff", "a term of 1.5": vote + "\x81\xa4Term\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00",
	}
	for name, body := range map[string]string{
		"a map of 2^32 - 1 members": "\xdf\xff\xff\xff\xff", "2^32 - 1 entries": "\x81\xa7Entries\xdd\xff\xff\xff\xff", "an entry of 4 GiB": "\x81\xa7Entries\x91\x81\xa4Data\xc6\xff\xff\xff\xff" + strings.Repeat("x", 100_000),
		"an entry that is a text of 4 GiB": "\x81\xa7Entries\x91\x81\xa4Data\xdb\xff\xff\xff\xff", "a name of 4 GiB": "\x81\xdb\xff\xff\xff\xff", "a leader of 4 GiB": "\x81\xa6Leader\xc6\xff\xff\xff\xff",
		"unknown member of 4 GiB": "\x81\xa1x\xc6\xff\xff\xff\xff", "unknown list of 2^32 - 1": "\x81\xa1x\xdd\xff\xff\xff\xff", "lists inside lists": "\x81\xa1x" + deep, "lists in the place of entries": "\x81\xa7Entries" + deep,
		"maps inside maps": "\x81\xa1x" + strings.Repeat("\x81\xa1a", 50_000), "an extension of 4 GiB": "\x81\xa4Term\xc9\xff\xff\xff\xff\x01", "half a message": "\x83\xa4Term\x07",
	} {
		all["append: "+name] = appends + body
		all["vote: "+name] = vote + body
		all["snapshot: "+name] = snapshot + body
	}
	return all
}

// TestHostileRaft: malformed messages end their stream, and none of them reaches Raft, however
// large they say that they are.
func TestHostileRaft(t *testing.T) {
	list := hostile.Begin(t, "raft")
	for name, bytes := range hostileMessages() {
		list.Case(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				layer, err := openLayer(n, "n1", "n1:8711")
				must(t, err)
				transport := NewTransport(TransportConfig{Layer: layer, Acks: NewAckClock(), Logger: hclog.NewNullLogger(), Stalled: func() bool { return false }})
				defer func() { _ = transport.Close() }()
				conn, err := n.Host("stranger").Dial(t.Context(), "n1:8711")
				must(t, err)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, _ = io.WriteString(conn, bytes)
				}()
				_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // a message without an end waits for more
				reply, err := io.ReadAll(conn)
				if len(reply) > 0 {
					t.Errorf("a reply of %d bytes, %v", len(reply), err)
				}
				_ = conn.Close()
				<-sent
				synctest.Wait()
				select {
				case rpc := <-transport.Consumer():
					t.Errorf("Raft got %T %+v", rpc.Command, rpc.Command)
				default:
				}
			})
		})
	}
}

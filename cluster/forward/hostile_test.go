package forward

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/hostile"
)

// frameOf is a frame of that kind.
func frameOf(kind frameKind, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+1)), append([]byte{byte(kind)}, body...)...)
}

// commandFrame is a frame with one command of those bytes.
func commandFrame(data []byte) []byte {
	f := commandsFrame{commands: []framedCommand{{sequence: 1, patienceMS: 250, data: data}}}
	return f.append(nil)
}

// hostileFrames are what no node sends to a leader on a stream that it has welcomed.
func hostileFrames() map[string][]byte {
	huge := commandFrame(make([]byte, maxCommandBytes+1))
	many := commandsFrame{commands: make([]framedCommand, batchCommands+1)}
	up := ups(77, 1)[0]
	return map[string][]byte{
		"an empty frame": {0, 0, 0, 0}, "a frame of 4 GiB": {255, 255, 255, 255, 1}, "a frame beyond its bound": {0, 0x40, 0, 1, 1}, "garbage": bytes.Repeat([]byte{0xa5}, 100_000),
		"text": []byte("GET / HTTP/1.1\r\n\r\n"), "kind 0": frameOf(0), "kind 99": frameOf(99, 1, 2, 3), "kind 255": frameOf(255), "a second hello": (&helloFrame{term: 3, origin: 77, number: 9}).append(nil),
		"replies of a leader": frameOf(frameReplies, 0), "conclusions of a leader": frameOf(frameConclusions, 0), "a reading of a leader": frameOf(frameReading, 1, 0, 1, 1),
		"a clock of a leader": frameOf(frameClock, 1, 1, 1), "a fence of a leader": frameOf(frameFence, 1),
		"commands without content": frameOf(frameCommands), "commands with a lying count": frameOf(frameCommands, 1, 255, 255, 255, 255, 15), "a negative reading": frameOf(frameCommands, append(bytes.Repeat([]byte{255}, 9), 1, 0)...),
		"a number of 11 bytes": frameOf(frameCommands, bytes.Repeat([]byte{255}, 11)...), "1,025 commands": many.append(nil), "a command of 2 MiB and a byte": huge,
		"an unknown flag": frameOf(frameCommands, 1, 1, 1, flagsKnown+1, 0, 0), "bytes behind the commands": frameOf(frameCommands, append(commandFrame(up)[frameHeader+1:], 0)...), "a read without content": frameOf(frameRead),
		"a read with more": frameOf(frameRead, 3, 1, 1),
	}
}

// hostileCommands are what the leader refuses, or drops, on a stream that goes on.
func hostileCommands() map[string][]byte {
	up := ups(77, 1)[0]
	return map[string][]byte{
		"no command": {}, "a zero": {0}, "garbage for a command": bytes.Repeat([]byte{0xa5}, 1000), "1 MiB of garbage": bytes.Repeat([]byte{0xff}, 1<<20), "half a command": up[:len(up)/2], "a command with more": append(bytes.Clone(up), 1),
		"a start of a term": fsm.Envelope{}.Encode(fsm.StartTerm{Term: 99, Leader: "evil", Level: 99}),
	}
}

// TestHostileForwarding: malformed frames end their stream, malformed commands are refused,
// and neither reaches the state.
func TestHostileForwarding(t *testing.T) {
	list := hostile.Begin(t, "forward")
	hello := helloFrame{term: 3, origin: 77, number: 5}
	for name, frame := range hostileFrames() {
		list.Case("frame: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := newTestLeader(3)
				o, welcome := openStream(t, leader.server, hello)
				if !welcome {
					t.Fatal("not welcome")
				}
				before, began := leader.Replica.Index(), time.Now()
				go func() { _, _ = o.conn.Write(frame) }()
				_ = o.conn.SetReadDeadline(began.Add(time.Minute))
				if _, err := io.Copy(io.Discard, o.r); err != nil || time.Since(began) >= clockEvery {
					t.Errorf("the stream goes on for %v: %v", time.Since(began), err) // a silent one ends later
				}
				if leader.value() != 0 || leader.Replica.Index() != before {
					t.Error("it reached the state")
				}
			})
		})
	}
	for name, data := range hostileCommands() {
		list.Case("command: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := newTestLeader(3)
				o, _ := openStream(t, leader.server, hello)
				before := leader.Replica.Index()
				o.send(data)
				if got := o.statuses(1); got[0] == statusDone || leader.Replica.Index() != before {
					t.Errorf("status %d, index %d after %d", got[0], leader.Replica.Index(), before)
				}
			})
		})
	}
	for name, first := range map[string][]byte{
		"no hello": commandFrame(ups(77, 1)[0]), "a hello of term 0": (&helloFrame{origin: 77, number: 5}).append(nil), "a hello of a later term": (&helloFrame{term: 1 << 62, origin: 77, number: 5}).append(nil),
		"half a hello": frameOf(frameHello, 3), "an unknown openness": frameOf(frameHello, 3, 1, 1, 2), "a read before the hello of another term": frameOf(frameRead, 9, 1),
	} {
		list.Case("first: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := newTestLeader(3)
				near, far := net.Pipe()
				go leader.server.Serve(far)
				go func() { _, _ = near.Write(first) }()
				_ = near.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = io.Copy(io.Discard, near) // the end, or a refusal and silence
				_ = near.Close()
				if leader.value() != 0 {
					t.Error("it reached the state")
				}
			})
		})
	}
}

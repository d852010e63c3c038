package probe

import (
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/hostile"
	"github.com/signalbox/signalbox/test/memnet"
)

// message is one on a probe stream.
func message(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// hostileMessages are what no node asks.
func hostileMessages() map[string]string {
	all := map[string]string{"nothing": "", "half a length": "\x00\x00", "half a message": "\x00\x00\x00\x09{", "4 GiB": "\xff\xff\xff\xff", "64 KiB and a byte": "\x00\x01\x00\x01" + strings.Repeat(" ", 64<<10+1)}
	for name, body := range map[string]string{
		"no JSON": "x", "an empty message": "", "no kind": "{}", "null": "null", "a list": "[]", "a text": `"ask"`, "more behind it": "{}{} ", "no sender": `{"kind":"raise"}`, "a kind of numbers": `{"kind":7}`,
		"a level of letters": `{"kind":"raise","from":"n1","level":"x"}`, "a negative level": `{"kind":"raise","from":"n1","level":-1}`, "a level of 2^32": `{"kind":"raise","from":"n1","level":4294967296}`,
		"a hash of nothing": `{"kind":"ask","from":"n1","state":""}`, "a hash of letters": `{"kind":"ask","from":"n1","state":"x:y"}`, "a short hash": `{"kind":"ask","from":"n1","state":"1:aa"}`,
		"a long hash": `{"kind":"ask","from":"n1","state":"1:` + strings.Repeat("aa", 20_000) + `"}`, "deep": `{"kind":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + `}`, "deep and open": strings.Repeat(`{"a":`, 12_000),
		"an end inside a text": `{"kind":"ask`, "half a surrogate": `{"kind":"\ud800"}`, "garbage": strings.Repeat("\xa5", 60_000),
	} {
		all[name] = message(body)
	}
	return all
}

// TestHostileProbes: malformed questions end their stream, in its time, and change nothing.
func TestHostileProbes(t *testing.T) {
	list := hostile.Begin(t, "probe")
	for name, sent := range hostileMessages() {
		list.Case(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				from, to := open(t, n, "n1"), open(t, n, "n2")
				to.carryOut = func(q *Request) (Reply, error) {
					t.Errorf("%+v was carried out", q)
					return Reply{}, ErrUnknownCall
				}
				conn, err := from.dial(t.Context(), "n2", "n2:1")
				must(t, err)
				defer conn.Close()
				go func() { _, _ = io.WriteString(conn, sent) }() // the node may end the stream before the end
				began := time.Now()
				_ = conn.SetReadDeadline(began.Add(time.Hour))
				if reply, err := io.ReadAll(conn); time.Since(began) > idleTimeout || err != nil || len(reply) > 0 {
					t.Errorf("after %v: %v, reply %.200q", time.Since(began), err, reply)
				}
			})
		})
	}
}

package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/memnet"
)

// probeOpen opens a peer port that answers questions as the node of that name.
func probeOpen(t *testing.T, n *memnet.Network, name string) *peerCalls {
	t.Helper()
	calls := &peerCalls{port: peerportOpen(t, n, name), self: name, log: hclog.NewNullLogger()}
	calls.answer = func(q probeRequest) probeAnswer {
		return probeAnswer{Node: name, State: stateEmpty, Member: q.From == "n1"}
	}
	calls.open()
	return calls
}

func TestProbeAnswersWithoutRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, _ := probeOpen(t, n, "n1"), probeOpen(t, n, "n2")
		answer, err := from.ask(t.Context(), "n2", "n2:1")
		if err != nil || answer.Node != "n2" || answer.State != stateEmpty || !answer.Member {
			t.Fatalf("answer %+v, %v", answer, err)
		}
		if _, err := from.ask(t.Context(), "n3", "n2:1"); err == nil || !strings.Contains(err.Error(), `"n2", not "n3"`) {
			t.Fatalf("another node's answer was taken: %v", err)
		}
	})
}

func TestProbeErrorsKeepTheirMeaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, to := probeOpen(t, n, "n1"), probeOpen(t, n, "n2")
		call := func() error {
			_, err := from.call(t.Context(), "n2:1", probeRequest{Kind: probeAdd})
			return err
		}
		if err := call(); !errors.Is(err, errUnknownCall) {
			t.Fatalf("a node that serves nothing says %v", err)
		}
		var fails error
		to.serve = func(_ context.Context, q probeRequest) (probeReply, error) {
			if q.From != "n1" {
				t.Errorf("the request is from %q", q.From)
			}
			return probeReply{Term: 7}, fails
		}
		for code, want := range callErrors {
			fails = fmt.Errorf("because: %w", want)
			if err := call(); !errors.Is(err, want) || err.Error() != fails.Error() {
				t.Errorf("%s: got %v, want %v", code, err, fails)
			}
		}
		fails = io.ErrShortBuffer
		if err := call(); !errors.Is(err, errRemote) || err.Error() != fails.Error() {
			t.Errorf("an error of its own kind: %v", err)
		}
		fails = nil
		if reply, err := from.call(t.Context(), "n2:1", probeRequest{Kind: probeRejoin}); err != nil || reply.Term != 7 {
			t.Errorf("no error: %+v, %v", reply, err)
		}
	})
}

func TestProbeAskIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, to := probeOpen(t, n, "n1"), probeOpen(t, n, "n2")
		to.port.Handle(StreamProbe, func(conn net.Conn) { // reads, never answers
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		})
		start := time.Now()
		_, err := from.ask(t.Context(), "n2", "n2:1")
		if took := time.Since(start); err == nil || took != probeAskTimeout {
			t.Fatalf("after %v: %v", took, err)
		}
	})
}

// TestProbeLinkDialsAnew: a stream that broke serves again after one error.
func TestProbeLinkDialsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, _ := probeOpen(t, n, "n1"), probeOpen(t, n, "n2")
		link := &probeLink{calls: from, address: "n2:1"}
		defer link.close()
		for range 3 {
			if _, err := link.ask(t.Context(), "n2"); err != nil {
				t.Fatal(err)
			}
			n.Reset("n1", "n2")
			if _, err := link.ask(t.Context(), "n2"); err == nil {
				t.Fatal("a broken stream answers")
			}
		}
	})
}

func TestProbeServerEndsIdleAndMalformedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, _ := probeOpen(t, n, "n1"), probeOpen(t, n, "n2")
		for name, c := range map[string]struct {
			sent []byte
			took time.Duration
		}{
			"idle":     {nil, probeIdleTimeout},
			"half":     {[]byte{0, 0, 0, 9, '{'}, probeIdleTimeout},
			"huge":     {[]byte{255, 255, 255, 255}, 0},
			"no json":  {[]byte{0, 0, 0, 1, 'x'}, 0},
			"no kind":  {[]byte{0, 0, 0, 2, '{', '}'}, 0},
			"trailing": {[]byte("\x00\x00\x00\x05{}{} "), 0},
		} {
			conn, err := from.port.Dial(t.Context(), StreamProbe, "n2:1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(c.sent); err != nil {
				t.Fatal(err)
			}
			if took := peerportExpectClosed(t, conn); took != c.took {
				t.Errorf("%s: closed after %v, want %v", name, took, c.took)
			}
		}
	})
}

// FuzzProbe gives arbitrary bytes to the decoder: it takes no more than one message
// of bounded size, and what it accepts survives another trip.
func FuzzProbe(f *testing.F) {
	seed := func(message any) {
		var b bytes.Buffer
		if err := writeProbe(&b, message); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	seed(probeRequest{Kind: probeAdd, From: "n1", ID: "n4", Address: "n4:8711"})
	seed(probeReply{Code: "not-leader", Error: "no"})
	seed(probeReply{Answer: &probeAnswer{Node: "n1", State: stateLive, Term: 1 << 60,
		Hashes: []stateHash{{4096, [16]byte{1, 15: 255}}}}})
	f.Add([]byte{0, 0, 0, 2, '{', '}', 1})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, make := range []func() interface{ check() error }{
			func() interface{ check() error } { return new(probeRequest) },
			func() interface{ check() error } { return new(probeReply) },
		} {
			r := bytes.NewReader(data)
			first := make()
			if readProbe(r, first) != nil {
				continue
			}
			if read := len(data) - r.Len(); read != 4+int(binary.BigEndian.Uint32(data)) || read > 4+maxProbeBytes {
				t.Fatalf("read %d bytes", read)
			}
			again, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			second := make()
			if err := json.Unmarshal(again, second); err != nil || !reflect.DeepEqual(first, second) {
				t.Fatalf("%+v became %+v, %v", first, second, err)
			}
		}
	})
}

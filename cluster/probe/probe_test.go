package probe

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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/test/memnet"
)

// open makes a node of that name listen, reply and ask.
func open(t *testing.T, n *memnet.Network, name string) *node {
	t.Helper()
	host := n.Host(name)
	listener, err := host.Listen(name + ":1")
	must(t, err)
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) }
	s := &node{Calls: NewCalls(dial, name, 1, func() *StateHash { return nil })}
	server := NewServer(t.Context(), s, hclog.NewNullLogger())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if s.silent.Load() {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				continue
			}
			go server.Handle(conn)
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return s
}

// node asks and replies.
type node struct {
	*Calls
	silent   atomic.Bool                     // it takes streams and never replies
	carryOut func(q *Request) (Reply, error) // nil: it knows no request
}

func (n *node) Describe(q *Request) Answer {
	return Answer{Node: n.self, State: Empty, Member: q.From == "n1"}
}

func (n *node) CarryOut(_ context.Context, q *Request, conn net.Conn) (Reply, error) {
	if n.carryOut == nil || conn == nil {
		return Reply{}, ErrUnknownCall
	}
	return n.carryOut(q)
}

func TestHostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, _ := open(t, n, "n1"), open(t, n, "n2")
		answer, err := from.Ask(t.Context(), "n2", "n2:1")
		if err != nil || answer.Node != "n2" || answer.State != Empty || !answer.Member {
			t.Fatalf("answer %+v, %v", answer, err)
		}
		if _, err := from.Ask(t.Context(), "n3", "n2:1"); err == nil || !strings.Contains(err.Error(), `"n2", not "n3"`) {
			t.Fatalf("another node's answer was taken: %v", err)
		}
	})
}

func TestAskAllKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, silent, _ := open(t, n, "n1"), open(t, n, "n2"), open(t, n, "n3")
		silent.silent.Store(true)
		began := time.Now()
		asked := from.AskAll(t.Context(), []Peer{{"n2", "n2:1"}, {"n3", "n3:1"}, {"n4", "n4:1"}})
		if len(asked) != 3 || asked[0].Err == nil || asked[1].Err != nil || asked[1].Answer.Node != "n3" || asked[2].ID != "n4" || asked[2].Err == nil {
			t.Errorf("asked %+v", asked)
		}
		if took := time.Since(began); took != askTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, to := open(t, n, "n1"), open(t, n, "n2")
		call := func() error {
			_, err := from.Call(t.Context(), "n2:1", Request{Kind: Add})
			return err
		}
		if err := call(); !errors.Is(err, ErrUnknownCall) {
			t.Fatalf("a node that knows no request says %v", err)
		}
		var fails error
		to.carryOut = func(q *Request) (Reply, error) {
			if q.From != "n1" {
				t.Errorf("the request is from %q", q.From)
			}
			return Reply{Term: 7}, fails
		}
		for code, want := range codes {
			fails = fmt.Errorf("because: %w", want)
			if err := call(); !errors.Is(err, want) || err.Error() != fails.Error() {
				t.Errorf("%s: got %v, want %v", code, err, fails)
			}
		}
		fails = io.ErrShortBuffer
		if err := call(); !errors.Is(err, outcome.ErrOutcomeUnknown) || err.Error() != fails.Error() {
			t.Errorf("an error of its own kind: %v", err)
		}
		to.silent.Store(true)
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := from.Call(gone, "n2:1", Request{Kind: Add}); !errors.Is(err, outcome.ErrOutcomeUnknown) {
			t.Errorf("no reply: %v", err)
		}
		if _, err := from.Call(t.Context(), "n9:1", Request{Kind: Add}); !errors.Is(err, ErrUnreached) || errors.Is(err, outcome.ErrOutcomeUnknown) {
			t.Errorf("not sent: %v", err)
		}
		to.silent.Store(false)
		fails = nil
		if reply, err := from.Call(t.Context(), "n2:1", Request{Kind: Rejoin}); err != nil || reply.Term != 7 {
			t.Errorf("no error: %+v, %v", reply, err)
		}
	})
}

func TestAskIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, to := open(t, n, "n1"), open(t, n, "n2")
		to.silent.Store(true)
		start := time.Now()
		_, err := from.Ask(t.Context(), "n2", "n2:1")
		if took := time.Since(start); err == nil || took != askTimeout {
			t.Fatalf("after %v: %v", took, err)
		}
	})
}

// TestLinkDialsAnew: a stream that broke serves again after one error.
func TestLinkDialsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, _ := open(t, n, "n1"), open(t, n, "n2")
		stream := &link{calls: from.Calls, id: "n2", address: "n2:1"}
		defer stream.close()
		for range 3 {
			if _, err := stream.ask(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			n.Reset("n1", "n2")
			if _, err := stream.ask(t.Context(), nil); err == nil {
				t.Fatal("a broken stream answers")
			}
		}
	})
}

func TestServerEndsIdleAndMalformedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, _ := open(t, n, "n1"), open(t, n, "n2")
		for name, c := range map[string]struct {
			sent []byte
			took time.Duration
		}{
			"idle":     {nil, idleTimeout},
			"half":     {[]byte{0, 0, 0, 9, '{'}, idleTimeout},
			"huge":     {[]byte{255, 255, 255, 255}, 0},
			"no json":  {[]byte{0, 0, 0, 1, 'x'}, 0},
			"no kind":  {[]byte{0, 0, 0, 2, '{', '}'}, 0},
			"trailing": {[]byte("\x00\x00\x00\x05{}{} "), 0},
		} {
			conn, err := from.dial(t.Context(), "n2", "n2:1")
			must(t, err)
			if _, err := conn.Write(c.sent); err != nil {
				t.Fatal(err)
			}
			if took := untilClosed(t, conn); took != c.took {
				t.Errorf("%s: closed after %v, want %v", name, took, c.took)
			}
		}
	})
}

func TestIdleStreamIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for sent, logged := range map[string]bool{"": false, "\xff\xff\xff\xff": true} {
			var log bytes.Buffer
			server := NewServer(t.Context(), &node{}, hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: &log}))
			here, there := net.Pipe()
			go func() { _, _ = here.Write([]byte(sent)) }()
			server.Handle(there)
			if got := log.Len() > 0; got != logged {
				t.Errorf("after %q the log has %q", sent, log.String())
			}
		}
	})
}

// untilClosed waits until the other side has closed a stream, and returns how long
// that took.
func untilClosed(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	_ = conn.SetReadDeadline(began.Add(time.Minute))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
	return time.Since(began)
}

// FuzzProbe gives arbitrary bytes to the decoder: it takes no more than one message
// of bounded size, and an accepted message survives another round.
func FuzzProbe(f *testing.F) {
	seed := func(message any) {
		var b bytes.Buffer
		if err := write(&b, message); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	seed(Request{Kind: Add, From: "n1", ID: "n4", Address: "n4:8711"})
	seed(Reply{Code: "not-leader", Error: "no"})
	seed(Reply{Answer: &Answer{Node: "n1", State: Live, Term: 1 << 60,
		Hashes: []StateHash{{4096, [16]byte{1, 15: 255}}}}})
	f.Add([]byte{0, 0, 0, 2, '{', '}', 1})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, make := range []func() interface{ check() error }{
			func() interface{ check() error } { return new(Request) },
			func() interface{ check() error } { return new(Reply) },
		} {
			r := bytes.NewReader(data)
			first := make()
			if read(r, first) != nil {
				continue
			}
			if read := len(data) - r.Len(); read != 4+int(binary.BigEndian.Uint32(data)) || read > 4+maxBytes {
				t.Fatalf("read %d bytes", read)
			}
			again, err := json.Marshal(first)
			must(t, err)
			second := make()
			if err := json.Unmarshal(again, second); err != nil || !reflect.DeepEqual(first, second) {
				t.Fatalf("%+v became %+v, %v", first, second, err)
			}
		}
	})
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

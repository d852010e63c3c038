package peer

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// preambleSample has another value in each field.
var preambleSample = Hello{
	Kind: StreamProbe, Refusal: RefusedFolder, Standing: StandingBound,
	Cluster: ID{0x11, 15: 0x12}, Folder: ID{0x21, 15: 0x22}, Incarnation: 0x3132333435363738,
	Node: "n1", Target: "n2", Address: "n1.peers:8711", Detail: "why not",
}

// refusedCount is how many streams a port has refused for a reason, as the metric says.
func refusedCount(t *testing.T, p *Port, reason string) (count float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.refusals.count)
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == reason {
				count = metric.GetCounter().GetValue()
			}
		}
	}
	return count
}

// TestNumbersAreForEver pins the numbers in a preamble. A line may be added, never changed.
func TestNumbersAreForEver(t *testing.T) {
	golden, err := os.ReadFile("testdata/numbers.golden")
	must(t, err)
	var now strings.Builder
	fmt.Fprintf(&now, "version %d\nstreams: raft %d, forward %d, probe %d\n", preambleVersion, StreamRaft, StreamForward, StreamProbe)
	fmt.Fprintf(&now, "standings: empty %d, bound %d\n", StandingEmpty, StandingBound)
	for r := Refusal(1); int(r) <= len(refusalNames); r++ {
		fmt.Fprintf(&now, "refusal %d %v\n", r, r)
	}
	if now.String() != string(golden) {
		t.Errorf("the numbers are\n%s, and were\n%s", now.String(), golden)
	}
}

// TestPreambleIsForEver: the bytes of version 1, and the hello read from them.
func TestPreambleIsForEver(t *testing.T) {
	golden, err := os.ReadFile("testdata/preamble.golden")
	must(t, err)
	want := strings.TrimSpace(string(golden))
	if got := hex.EncodeToString(preambleSample.Encode()); got != want {
		t.Errorf("a hello became\n%s, and was\n%s", got, want)
	}
	content, err := hex.DecodeString(want)
	must(t, err)
	if got, err := ReadHello(bytes.NewReader(content)); err != nil || got != preambleSample {
		t.Errorf("read as %+v, error %v", got, err)
	}
	longer := append(bytes.Clone(content), "of a later release"...)
	longer[7] += byte(len("of a later release"))
	rest := bytes.NewReader(append(longer, "the stream's own"...))
	if got, err := ReadHello(rest); err != nil || got != preambleSample {
		t.Errorf("with more at its end, it was read as %+v, error %v", got, err)
	}
	if left, _ := io.ReadAll(rest); string(left) != "the stream's own" {
		t.Errorf("what is left for the stream is %q", left)
	}
}

// TestPreambleTakesNothingElse: each cut and many changes are refused, or read as a
// hello that can be written again.
func TestPreambleTakesNothingElse(t *testing.T) {
	content := preambleSample.Encode()
	for length := range content {
		if _, err := ReadHello(bytes.NewReader(content[:length])); err == nil {
			t.Errorf("%d of %d bytes were taken", length, len(content))
		}
	}
	for name, change := range map[string]func(*Hello){
		"no standing":                func(h *Hello) { h.Standing = 0 },
		"an unknown standing":        func(h *Hello) { h.Standing = 4 },
		"bound to no cluster":        func(h *Hello) { h.Cluster = ID{} },
		"an empty node of a cluster": func(h *Hello) { h.Standing = StandingEmpty },
		"no node":                    func(h *Hello) { h.Node = "" },
		"no incarnation":             func(h *Hello) { h.Incarnation = 0 },
	} {
		changed := preambleSample
		change(&changed)
		if _, err := ReadHello(bytes.NewReader(changed.Encode())); !errors.Is(err, errPreamble) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// FuzzPreamble reads any bytes: it must not panic, nor take what it would not write.
func FuzzPreamble(f *testing.F) {
	f.Add(preambleSample.Encode())
	f.Add([]byte("SBXP\x01\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := ReadHello(bytes.NewReader(content))
		if err != nil || h.Refusal == RefusedVersion && h.Node == "" {
			return
		}
		if again, err := ReadHello(bytes.NewReader(h.Encode())); err != nil || again != h {
			t.Errorf("%+v is read again as %+v, error %v", h, again, err)
		}
	})
}

// TestPreambleOfAnotherVersionIsRefused, each way, with a reason.
func TestPreambleOfAnotherVersionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from, to := portOpen(t, n, "n1"), portOpen(t, n, "n2")
		to.Handle(StreamForward, portEcho(""))
		c := portRaw(t, n)
		newer := preambleSample.Encode()
		newer[4], newer[5] = 2, 9
		if _, err := c.Write(newer); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, preambleHead+4)
		if _, err := io.ReadFull(c, reply); err != nil || reply[4] != 1 || reply[5] != 1 || Refusal(reply[preambleHead+1]) != RefusedVersion {
			t.Errorf("the reply to versions 2 to 9: %x, error %v", reply, err)
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(c, int64(binary.BigEndian.Uint16(reply[6:])-4)))
		portExpectClosed(t, c)
		if got := refusedCount(t, to, "version"); got != 1 {
			t.Errorf("counted %v", got)
		}
		listener, err := n.Host("later").Listen("later:1")
		must(t, err)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				_, _ = ReadHello(conn)
				_, _ = conn.Write(newer)
			}
		}()
		if _, err := from.Dial(t.Context(), StreamForward, "later:1"); !RefusedFor(err, RefusedVersion) {
			t.Errorf("a node of a later release was called: %v", err)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStrangersAreCountedAndLoggedNowAndThen: a flood of garbage is in the metric, and
// is one line every 5 s in the log.
func TestStrangersAreCountedAndLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		var log bytes.Buffer
		p, err := OpenPort(Config{Network: n.Host("n2"), Bind: "n2:1", Advertise: "n2:1", Identity: testIdentity("n2"), Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
		must(t, err)
		p.Handle(StreamForward, func(net.Conn) { t.Error("a stranger reached a handler") })
		for range 100 {
			c := portRaw(t, n)
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			portExpectClosed(t, c)
		}
		time.Sleep(refusalLogEvery) // virtual
		c := portRaw(t, n)
		_, _ = c.Write([]byte("SBXP\x01\x01\x00\x01\x00"))
		portExpectClosed(t, c)
		if got := refusedCount(t, p, "malformed"); got != 101 {
			t.Errorf("counted %v of 101", got)
		}
		var lines []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "a stream of a peer is refused") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "remote=stranger:") || !strings.Contains(lines[0], "local=n2:1") || !strings.Contains(lines[1], "more=99") {
			t.Errorf("said %q", lines)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusalsOfBothSidesAreLogged, though they come at the same moment: each once, with how many are unlogged.
func TestRefusalsOfBothSidesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRefusals(hclog.New(&hclog.LoggerOptions{Output: &log}))
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		for range 3 {
			for range 2 {
				r.noteRemote(RefusedCluster, "", near)
				r.note(RefusedCluster, "", near, StreamProbe)
			}
			time.Sleep(refusalLogEvery) // virtual
		}
		for _, message := range []string{"a stream of a peer is refused", "a peer refuses this node's stream"} {
			if got := strings.Count(log.String(), message); got != 3 {
				t.Errorf("%q was logged %d times in\n%s", message, got, log.String())
			}
		}
		if got := strings.Count(log.String(), "more=1"); got != 4 {
			t.Errorf("%d lines say that one is unlogged, in\n%s", got, log.String())
		}
	})
}

// TestSlowPreambleEnds: a byte a second does not keep a stream open.
func TestSlowPreambleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		portOpen(t, n, "n2").Handle(StreamProbe, portEcho(""))
		c := portRaw(t, n)
		began := time.Now()
		for _, b := range preambleSample.Encode() {
			if _, err := c.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(time.Second) // virtual
		}
		if took := time.Since(began); took > preambleTimeout+2*time.Second {
			t.Errorf("it was heard for %v", took)
		}
	})
}

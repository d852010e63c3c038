package cluster

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// preambleSample has a value of its own in each field.
var preambleSample = hello{
	lowest: 1, highest: 1, kind: StreamProbe, refusal: refusedFolder, standing: standingBound,
	cluster: fsm.ClusterID{0x11, 15: 0x12}, folder: store.FolderID{0x21, 15: 0x22}, incarnation: 0x3132333435363738,
	node: "n1", target: "n2", address: "n1.peers:8711", detail: "why not",
}

// refusedCount is how many streams a port has refused for a reason, as the metric says.
func refusedCount(t *testing.T, p *PeerPort, reason string) (count float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.refusals.count)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == reason {
				count = metric.GetCounter().GetValue()
			}
		}
	}
	return count
}

// TestPreambleIsForEver: the bytes of version 1, and what is read from them.
func TestPreambleIsForEver(t *testing.T) {
	golden, err := os.ReadFile("testdata/preamble.golden")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(string(golden))
	if got := hex.EncodeToString(preambleSample.encode()); got != want {
		t.Errorf("a hello became\n%s, and was\n%s", got, want)
	}
	content, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readHello(bytes.NewReader(content)); err != nil || got != preambleSample {
		t.Errorf("read as %+v, error %v", got, err)
	}
	longer := append(bytes.Clone(content), "of a later release"...)
	longer[7] += byte(len("of a later release"))
	rest := bytes.NewReader(append(longer, "the stream's own"...))
	if got, err := readHello(rest); err != nil || got != preambleSample {
		t.Errorf("with more at its end, it was read as %+v, error %v", got, err)
	}
	if own, _ := io.ReadAll(rest); string(own) != "the stream's own" {
		t.Errorf("what is left for the stream is %q", own)
	}
}

// TestPreambleTakesNothingElse: each cut and many changes are refused, or read as a
// hello that can be written again.
func TestPreambleTakesNothingElse(t *testing.T) {
	content := preambleSample.encode()
	for length := range content {
		if _, err := readHello(bytes.NewReader(content[:length])); err == nil {
			t.Errorf("%d of %d bytes were taken", length, len(content))
		}
	}
	for name, change := range map[string]func(*hello){
		"no standing":                func(h *hello) { h.standing = 0 },
		"an unknown standing":        func(h *hello) { h.standing = 4 },
		"bound to no cluster":        func(h *hello) { h.cluster = fsm.ClusterID{} },
		"an empty node of a cluster": func(h *hello) { h.standing = standingEmpty },
		"no node":                    func(h *hello) { h.node = "" },
		"no incarnation":             func(h *hello) { h.incarnation = 0 },
	} {
		changed := preambleSample
		change(&changed)
		if _, err := readHello(bytes.NewReader(changed.encode())); !errors.Is(err, errPreamble) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// FuzzPreamble reads any bytes: it must not panic, nor take what it would not write.
func FuzzPreamble(f *testing.F) {
	f.Add(preambleSample.encode())
	f.Add([]byte("SBXP\x01\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := readHello(bytes.NewReader(content))
		if err != nil || h.refusal == refusedVersion && h.node == "" {
			return
		}
		if h.lowest == preambleVersion && h.highest == preambleVersion {
			if again, err := readHello(bytes.NewReader(h.encode())); err != nil || again != h {
				t.Errorf("%+v is read again as %+v, error %v", h, again, err)
			}
		}
	})
}

// TestJudge holds the table of who may open which stream to whom.
func TestJudge(t *testing.T) {
	plain, other, raised := fsm.ClusterID{1}, fsm.ClusterID{2}, fsm.ClusterID{1 | upgradedBit}
	empty := hello{standing: standingEmpty}
	old := hello{standing: standingOld}
	bound := func(id fsm.ClusterID) hello { return hello{standing: standingBound, cluster: id} }
	for name, c := range map[string]struct {
		dialler, acceptor hello
		raft, probe       refusal
	}{
		"the same cluster":                      {bound(plain), bound(plain), 0, 0},
		"another cluster":                       {bound(plain), bound(other), refusedCluster, refusedCluster},
		"an empty node calls":                   {empty, bound(plain), refusedKind, 0},
		"an empty node is called":               {bound(plain), empty, refusedKind, 0},
		"two empty nodes":                       {empty, empty, refusedKind, 0},
		"two of an older release":               {old, old, 0, 0},
		"an older one is called":                {bound(raised), old, 0, 0},
		"an older one calls":                    {old, bound(raised), refusedUnbound, 0},
		"an older one of another cluster":       {bound(plain), old, refusedCluster, refusedCluster},
		"an older one of another cluster calls": {old, bound(plain), refusedCluster, refusedCluster},
		"an older one and an empty one":         {old, empty, refusedKind, 0},
	} {
		for kind, want := range map[StreamKind]refusal{StreamRaft: c.raft, StreamForward: c.raft, StreamProbe: c.probe} {
			if got := judge(kind, &c.dialler, &c.acceptor); got != want {
				t.Errorf("%s, kind %d: %v, want %v", name, kind, got, want)
			}
		}
	}
}

// TestPreambleOfAnotherVersionIsRefused, each way, with a reason.
func TestPreambleOfAnotherVersionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from, to := peerportOpen(t, n, "n1"), peerportOpen(t, n, "n2")
		to.Handle(StreamForward, peerportEcho(""))
		c := peerportRaw(t, n)
		newer := preambleSample
		newer.lowest, newer.highest = 2, 9
		if _, err := c.Write(newer.encode()); err != nil {
			t.Fatal(err)
		}
		reply, err := readHello(c)
		if err != nil || reply.refusal != refusedVersion || reply.lowest != 1 || reply.highest != 1 {
			t.Errorf("the reply to versions 2 to 9: %+v, error %v", reply, err)
		}
		peerportExpectClosed(t, c)
		if got := refusedCount(t, to, "version"); got != 1 {
			t.Errorf("counted %v", got)
		}
		listener, err := n.Host("later").Listen("later:1")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				_, _ = readHello(conn)
				_, _ = conn.Write(newer.encode())
			}
		}()
		if _, err := from.Dial(t.Context(), StreamForward, "later:1"); !refusedFor(err, refusedVersion) {
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
		n := peerportNetwork()
		log := newRecordedLog()
		p, err := OpenPeerPort(PeerPortConfig{Network: n.Host("n2"), Bind: "n2:1", Advertise: "n2:1", Identity: testIdentity("n2"), Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		p.Handle(StreamForward, func(net.Conn) { t.Error("a stranger reached a handler") })
		for range 100 {
			c := peerportRaw(t, n)
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			peerportExpectClosed(t, c)
		}
		time.Sleep(refusalLogEvery) // virtual
		c := peerportRaw(t, n)
		_, _ = c.Write([]byte("SBXP\x01\x01\x00\x01\x00"))
		peerportExpectClosed(t, c)
		if got := refusedCount(t, p, "malformed"); got != 101 {
			t.Errorf("counted %v of 101", got)
		}
		said := log.lines("a stream of a peer is refused")
		if len(said) != 2 || !strings.Contains(said[0], "remote=stranger:") || !strings.Contains(said[0], "local=n2:1") || !strings.Contains(said[1], "more=99") {
			t.Errorf("said %q", said)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowPreambleEnds: a byte a second does not keep a stream open.
func TestSlowPreambleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		peerportOpen(t, n, "n2").Handle(StreamProbe, peerportEcho(""))
		c := peerportRaw(t, n)
		began := time.Now()
		for _, b := range preambleSample.encode() {
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

package cluster

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/memnet"
)

var (
	_ Network = TCPNetwork{}
	_ Network = (*memnet.Host)(nil)
)

// TestPeerPortOverTCP: two ports on real sockets, the peer called by name.
func TestPeerPortOverTCP(t *testing.T) {
	open := func(name string) *PeerPort {
		p, err := OpenPeerPort(PeerPortConfig{
			Network: TCPNetwork{}, Bind: "127.0.0.1:0", Advertise: "unused:1", Identity: testIdentity(name), Logger: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	from, to := open("n1"), open("n2")
	to.Handle(StreamForward, peerportEcho("tcp "))
	_, port, err := net.SplitHostPort(to.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := from.Dial(ctx, StreamForward, net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatal(err)
	}
	if got := peerportAsk(t, c, "x"); got != "tcp x" {
		t.Errorf("answered %q", got)
	}
	if err := to.Close(); err != nil {
		t.Error(err)
	}
	peerportExpectClosed(t, c)
	if err := from.Close(); err != nil {
		t.Error(err)
	}
}

func TestTCPDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := (TCPNetwork{}).Dial(ctx, "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("dialled %v, %v", c, err)
	}
}

func TestTCPAddressInUse(t *testing.T) {
	l, err := TCPNetwork{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = OpenPeerPort(PeerPortConfig{Network: TCPNetwork{}, Bind: l.Addr().String(), Identity: testIdentity("n1"), Logger: hclog.NewNullLogger()})
	if err == nil {
		t.Fatal("an address in use was bound")
	}
}

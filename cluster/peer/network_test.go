package peer

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/test/memnet"
)

var (
	_ Network = TCPNetwork{}
	_ Network = (*memnet.Host)(nil)
)

// TestTCPConnectionShowsItsEnd: a dialled connection shows its end without a read, and takes no byte from the next read.
func TestTCPConnectionShowsItsEnd(t *testing.T) {
	for name, finish := range map[string]func(*net.TCPConn) error{
		"close": (*net.TCPConn).Close,
		"reset": func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := TCPNetwork{}.Listen("127.0.0.1:0")
			must(t, err)
			defer func() { _ = l.Close() }()
			near, err := TCPNetwork{Stretch: 1}.Dial(t.Context(), l.Addr().String())
			must(t, err)
			defer func() { _ = near.Close() }()
			far, err := l.Accept()
			must(t, err)
			ended := near.(Ender).Ended
			if ended() {
				t.Error("an open connection has ended")
			}
			_, err = far.Write([]byte("xy"))
			must(t, err)
			b := make([]byte, 1)
			if _, err := near.Read(b); err != nil || b[0] != 'x' || ended() {
				t.Errorf("read %q, %v; a connection with a byte to read has ended: %v", b, err, ended())
			}
			if _, err := near.Read(b); err != nil || b[0] != 'y' {
				t.Errorf("read %q, %v", b, err)
			}
			must(t, finish(far.(*net.TCPConn)))
			for !ended() { // the end arrives a moment later
				runtime.Gosched()
			}
		})
	}
}

// TestPortOverTCP: two ports on real sockets, the peer called by name.
func TestPortOverTCP(t *testing.T) {
	open := func(name string) *Port {
		p, err := OpenPort(Config{
			Network: TCPNetwork{}, Bind: "127.0.0.1:0", Advertise: "unused:1", Identity: testIdentity(name), Logger: hclog.NewNullLogger(),
		})
		must(t, err)
		return p
	}
	from, to := open("n1"), open("n2")
	to.Handle(StreamForward, portEcho("tcp "))
	_, port, err := net.SplitHostPort(to.Addr().String())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := from.Dial(ctx, StreamForward, net.JoinHostPort("localhost", port))
	must(t, err)
	if got := portAsk(t, c, "x"); got != "tcp x" {
		t.Errorf("answered %q", got)
	}
	if err := to.Close(); err != nil {
		t.Error(err)
	}
	portExpectClosed(t, c)
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
	must(t, err)
	defer func() { _ = l.Close() }()
	_, err = OpenPort(Config{Network: TCPNetwork{}, Bind: l.Addr().String(), Identity: testIdentity("n1"), Logger: hclog.NewNullLogger()})
	if err == nil {
		t.Fatal("an address in use was bound")
	}
}

func TestCheckAddress(t *testing.T) {
	for _, test := range []struct {
		address  string
		insecure bool
		want     string // part of the error; empty: no error
	}{
		{"127.0.0.1:8711", false, ""},
		{"127.8.9.1:8711", false, ""},
		{"[::1]:8711", false, ""},
		{"localhost:8711", false, ""},
		{"127.0.0.1:0", false, ""},
		{"0.0.0.0:8711", false, "not on loopback"},
		{"[::]:8711", false, "not on loopback"},
		{":8711", false, "not on loopback"},
		{"10.1.2.3:8711", false, "not on loopback"},
		{"[::ffff:10.1.2.3]:8711", false, "not on loopback"},
		{"0.0.0.0:8711", true, ""},
		{":8711", true, ""},
		{"no-such-host.invalid:8711", true, ""},
		{"no-such-host.invalid:8711", false, "no-such-host.invalid"},
		{"127.0.0.1", false, "not host:port"},
		{"127.0.0.1", true, "not host:port"},
		{"127.0.0.1:", true, "port"},
		{"127.0.0.1:http", false, "port"},
		{"127.0.0.1:65536", false, "port"},
		{"", false, "not host:port"},
	} {
		err := CheckAddress(test.address, test.insecure)
		if test.want == "" && err != nil {
			t.Errorf("%q, insecure %v: %v", test.address, test.insecure, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q, insecure %v: %v, want %q", test.address, test.insecure, err, test.want)
		}
	}
}

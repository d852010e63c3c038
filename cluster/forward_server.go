package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// forwardBuffer is the size of a stream's read buffer, in bytes.
	forwardBuffer = 64 << 10
	// forwardWriteTimeout is how long a peer may take nothing of what it is sent.
	forwardWriteTimeout = 5 * time.Second
	// maxReadAsks is how many reads of one stream may be under way; a peer gathers
	// its readers and has one or two.
	maxReadAsks = 16
)

// forwardServer is the leader's side of forwarding: it takes commands and reads
// from other nodes' streams. It forwards nothing itself.
type forwardServer struct {
	log         hclog.Logger
	requests    *requests
	waits       *waits
	established func() *reign
	admits      func(command []byte) error
	epoch       time.Time // where the forwarding clock starts
	streams     guestStreams
	// read answers a read index and a reading of cluster time in a reign.
	read func(context.Context, *reign) (index uint64, nowMS int64, err error)
}

// serve handles one stream until it fails or the port closes it. It reads; a
// goroutine of its own writes; the apply goroutine puts into the outbox.
func (s *forwardServer) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &guestStream{server: s, from: conn.RemoteAddr(), outbox: newOutbox(), ctx: ctx, asks: make(chan struct{}, maxReadAsks)}
	s.waits.enter(g)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := g.outbox.write(timedWriter{conn}); err != nil {
			s.log.Debug("cannot answer a peer", "from", g.from, "error", err)
		}
		_ = conn.Close() // ends the reading, too
	}()
	if err := g.receive(bufio.NewReaderSize(conn, forwardBuffer)); err != nil && !errors.Is(err, io.EOF) {
		s.log.Debug("a stream of a peer ended", "from", g.from, "error", err)
	}
	cancel()
	s.waits.leave(g)
	g.outbox.close()
	<-written
}

// timedWriter gives each write a deadline.
type timedWriter struct{ conn net.Conn }

func (w timedWriter) Write(b []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(forwardWriteTimeout)); err != nil {
		return 0, err
	}
	return w.conn.Write(b)
}

// guestStream is one stream from another node.
type guestStream struct {
	server *forwardServer
	from   net.Addr
	outbox *outbox
	ctx    context.Context // ends with the stream
	asks   chan struct{}   // one for each read under way

	// From the hello; receive's.
	term, origin, number uint64
	welcomed             bool

	frames atomic.Uint64 // that have come
	fenced atomic.Bool   // a later stream has come: this one brings no commands
	ageMS  atomic.Int64  // of the last frame of commands when it came
}

// nowMS reads the forwarding clock, in milliseconds.
func (s *forwardServer) nowMS() int64 { return time.Since(s.epoch).Milliseconds() }

// clock returns what the origin is told of the time.
func (g *guestStream) clock() clockFrame {
	return clockFrame{readingMS: g.server.nowMS(), ageMS: g.ageMS.Load(), frames: g.frames.Load()}
}

// receive handles frames until one can't be read.
func (g *guestStream) receive(r *bufio.Reader) error {
	for {
		frame, err := readFrame(r, nil) // commands keep their bytes
		if err != nil {
			return err
		}
		g.frames.Add(1)
		body := frame[1:]
		switch frameKind(frame[0]) {
		case frameHello:
			f, err := decodeHello(body)
			if err == nil {
				err = g.hello(f)
			}
			if err != nil {
				return err
			}
		case frameCommands:
			f, err := decodeCommands(body)
			if err != nil {
				return err
			}
			g.propose(&f)
		case frameRead:
			f, err := decodeReadAsk(body)
			if err != nil {
				return err
			}
			g.read(f)
		default:
			return errFrame
		}
	}
}

// propose hands a frame's commands to the proposer, if this node leads in the
// stream's term, and refuses those that are too old.
func (g *guestStream) propose(f *commandsFrame) {
	reign := g.server.established()
	if !g.welcomed || reign == nil || reign.term != g.term {
		g.refuse(f.commands, errRefused)
		return
	}
	ageMS := max(0, g.server.nowMS()-f.readingMS)
	g.ageMS.Store(max(ageMS, 1))
	proposals := make([]proposal, 0, len(f.commands))
	for i := range f.commands {
		c := &f.commands[i]
		if err := g.server.admits(c.data); err != nil { // first: this program may not know the level
			g.refuse(f.commands[i:i+1], err)
			continue
		}
		command, err := fsm.CheckCommand(c.data)
		if err != nil {
			g.server.log.Warn("a peer sent what is no command", "from", g.from, "error", err)
			g.refuse(f.commands[i:i+1], ErrNotApplied)
			continue
		}
		if ageMS > c.patienceMS {
			g.refuse(f.commands[i:i+1], errLate)
			continue
		}
		hosted := &guestCommand{
			stream: g, forwarded: *c, weight: g.server.requests.large.cost(command), takeByMS: f.readingMS + c.patienceMS,
			id: fsm.RequestID{Origin: g.origin, Sequence: c.sequence},
		}
		g.server.requests.host(hosted.id, hosted) // before it can be applied
		proposals = append(proposals, hosted)
	}
	if err := reign.proposer.enqueue(proposals); err != nil {
		for _, p := range proposals {
			p.failed(err)
		}
	}
}

// refuse answers commands that were not taken.
func (g *guestStream) refuse(commands []forwarded, err error) {
	g.outbox.add(func(m *mail) {
		for i := range commands {
			m.replies = append(m.replies, forwardReply{sequence: commands[i].sequence, status: statusOf(err)})
		}
	})
}

// read answers a read ask from a goroutine of its own.
func (g *guestStream) read(ask readAsk) {
	reading := forwardReading{number: ask.number, status: statusRefused}
	reign := g.server.established()
	if reign == nil || reign.term != ask.term {
		g.outbox.add(func(m *mail) { m.readings = append(m.readings, reading) })
		return
	}
	select {
	case g.asks <- struct{}{}:
	default:
		reading.status = statusOverloaded
		g.outbox.add(func(m *mail) { m.readings = append(m.readings, reading) })
		return
	}
	go func() {
		defer func() { <-g.asks }()
		index, nowMS, err := g.server.read(g.ctx, reign)
		if err == nil {
			reading.status, reading.index, reading.nowMS = statusDone, index, nowMS
		}
		g.outbox.add(func(m *mail) { m.readings = append(m.readings, reading) })
	}()
}

// conclude implements remoteListener.
func (g *guestStream) conclude(place uint64, end *conclusion) {
	g.outbox.add(func(m *mail) {
		m.ends = append(m.ends, forwardEnd{place: place, index: end.index, nowMS: end.nowMS, result: &end.result})
	})
}

// guestCommand is one command of another node, on its way through this one's log.
type guestCommand struct {
	forwarded
	stream   *guestStream
	id       fsm.RequestID
	weight   int
	takeByMS int64 // on the forwarding clock: when it was to come to this node
}

// command implements proposal.
func (c *guestCommand) command() []byte { return c.data }

// load implements proposal.
func (c *guestCommand) load() load {
	return load{class: c.class, weight: c.weight, bytes: len(c.data)}
}

// failed implements proposal. Of what is open nothing is said: the origin's own
// machine will tell.
func (c *guestCommand) failed(err error) {
	c.stream.server.requests.unhost(c.id, c)
	if err == errOpen {
		return
	}
	c.stream.refuse([]forwarded{c.forwarded}, err)
}

// answer implements guest. It runs in the apply goroutine.
func (c *guestCommand) answer(result *fsm.Result, index uint64, nowMS int64) {
	if c.listens && result.Code == fsm.Waiting {
		c.stream.server.waits.watch(result.Place, c.stream)
	}
	c.stream.outbox.add(func(m *mail) {
		m.replies = append(m.replies, forwardReply{sequence: c.sequence, status: statusDone, index: index, nowMS: nowMS, result: result})
	})
}

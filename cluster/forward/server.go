package forward

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

const (
	// readBuffer is the size of a stream's read buffer, in bytes.
	readBuffer = 64 << 10
	// writeTimeout bounds how long a peer may accept no byte.
	writeTimeout = 5 * time.Second
	// maxReadAsks bounds the reads of one stream that are under way. A peer normally has one or two.
	maxReadAsks = 16
)

// Server is the leader's side of forwarding. It accepts commands and reads on the streams of other nodes, and passes no
// command to a third node. Commands come only on the last stream that an origin has opened in a term: an origin that
// opens another stream has given up the earlier streams.
type Server struct {
	config Config
	epoch  time.Time // where the forwarding clock starts

	mu   sync.Mutex
	term uint64 // of the streams in last
	// last has the latest stream of each origin, even after the stream has ended, because an earlier stream may arrive
	// later.
	last map[uint64]*peerStream
}

var errStreamRefused = errors.New("not the leader of the stream's term, or a later stream has come")

// NewServer returns a server. There is no need to start or stop it.
func NewServer(config Config) *Server { return &Server{config: config, epoch: time.Now()} }

// Serve handles one stream until it fails or the port closes it. Serve reads; a second goroutine writes; the apply
// goroutine adds to the outbox.
func (s *Server) Serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	p := newPeerStream(ctx, s, conn.RemoteAddr())
	s.config.Requests.AddStream(p)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := p.outbox.write(timedWriter{conn}); err != nil {
			s.config.Log.Debug("cannot reply to a peer", "from", p.from, "error", err)
		}
		_ = conn.Close() // ends the reading, too
	}()
	if err := p.receive(bufio.NewReaderSize(conn, readBuffer)); err != nil && !errors.Is(err, io.EOF) {
		s.config.Log.Debug("a stream of a peer ended", "from", p.from, "error", err)
	}
	cancel()
	s.config.Requests.RemoveStream(p)
	p.outbox.close()
	<-written
}

// peerStream is one stream from another node.
type peerStream struct {
	server *Server
	from   net.Addr
	outbox *outbox
	ctx    context.Context // ends with the stream
	asks   chan struct{}   // one for each read under way

	// The hello sets these fields. Only the goroutine of receive uses them.
	term, origin, number uint64
	welcomed             bool

	frames atomic.Uint64 // received frames
	fenced atomic.Bool   // a later stream has come, so this stream adds no more commands
	ageMS  atomic.Int64  // of the last frame of commands when it arrived
}

func newPeerStream(ctx context.Context, s *Server, from net.Addr) *peerStream {
	p := &peerStream{server: s, from: from, ctx: ctx, asks: make(chan struct{}, maxReadAsks)}
	p.outbox = newOutbox(p.clock)
	return p
}

// nowMS reads the forwarding clock, in milliseconds.
func (s *Server) nowMS() int64 { return time.Since(s.epoch).Milliseconds() }

// clock returns a reading of the forwarding clock for the origin.
func (p *peerStream) clock() clockFrame {
	return clockFrame{readingMS: p.server.nowMS(), ageMS: p.ageMS.Load(), frames: p.frames.Load()}
}

// receive handles frames until a frame cannot be read.
func (p *peerStream) receive(r *bufio.Reader) error {
	for {
		frame, err := readFrame(r, nil) // a new buffer each time, because the commands alias its bytes
		if err != nil {
			return err
		}
		p.frames.Add(1)
		body := frame[1:]
		switch frameKind(frame[0]) {
		case frameHello:
			f, err := decodeHello(body)
			if err == nil {
				err = p.handleHello(f)
			}
			if err != nil {
				return err
			}
		case frameCommands:
			f, err := decodeCommands(body)
			if err != nil {
				return err
			}
			p.handleCommands(&f)
		case frameRead:
			f, err := decodeReadAsk(body)
			if err != nil {
				return err
			}
			p.handleRead(f)
		default:
			return errFrame
		}
	}
}

// handleHello begins a stream: it welcomes the origin, or returns an error that ends the stream.
func (p *peerStream) handleHello(f helloFrame) error {
	t := p.server.config.Node.Leading()
	if p.welcomed || t == nil || t.Number() != f.term {
		return errStreamRefused
	}
	p.term, p.origin, p.number = f.term, f.origin, f.number
	if !p.server.enter(p) {
		return errStreamRefused
	}
	p.welcomed = true
	p.outbox.begin()
	if f.open {
		go p.sendFence(t)
	}
	return nil
}

// sendFence sends the index that bounds the entries of the origin's earlier streams. Those streams are fenced: their
// commands that the proposer has not taken yet are withdrawn. So the entry that ProposeTick makes now follows all their
// entries. If no entry can be made, the origin gets no fence and keeps waiting for the outcomes.
func (p *peerStream) sendFence(t Term) {
	index, err := t.ProposeTick(p.ctx)
	if err != nil {
		p.server.config.Log.Debug("no fence for a peer's earlier streams", "from", p.from, "error", err)
		return
	}
	p.outbox.addFrame((&fenceFrame{index}).append)
}

// enter makes a stream the latest of its origin, and fences the earlier stream. It returns false if a later stream has
// come.
func (s *Server) enter(p *peerStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.term < s.term {
		return false
	}
	if p.term > s.term { // streams of earlier terms add no commands any more
		s.term, s.last = p.term, map[uint64]*peerStream{}
	}
	if before := s.last[p.origin]; before != nil {
		if before.number >= p.number {
			return false
		}
		before.fenced.Store(true)
	}
	s.last[p.origin] = p
	return true
}

// handleCommands hands the commands of a frame to the proposer if this node leads in the stream's term. It refuses
// commands that are too old.
func (p *peerStream) handleCommands(f *commandsFrame) {
	t := p.server.config.Node.Leading()
	if !p.welcomed || t == nil || t.Number() != p.term {
		p.refuse(f.commands, outcome.Verdict{Fate: outcome.Refused})
		return
	}
	ageMS := max(0, p.server.nowMS()-f.readingMS)
	p.ageMS.Store(max(ageMS, 1)) // 0: no frame has come yet
	proposals := make([]lead.Proposal, 0, len(f.commands))
	for i := range f.commands {
		c := &f.commands[i]
		if err := p.server.config.Replica.Admits(c.data); err != nil { // before CheckCommand, which can't read a command of a level that this program does not know
			p.refuse(f.commands[i:i+1], outcome.Failed.Because(err))
			continue
		}
		command, err := fsm.CheckCommand(c.data)
		if err != nil {
			p.server.config.Log.Warn("a peer sent bytes that are no command", "from", p.from, "error", err)
			p.refuse(f.commands[i:i+1], outcome.Failed.Because(outcome.ErrNotApplied))
			continue
		}
		if ageMS > c.patienceMS {
			p.refuse(f.commands[i:i+1], outcome.Verdict{Fate: outcome.Late})
			continue
		}
		taken := &forwardedCommand{
			stream: p, framedCommand: *c, weight: p.server.config.Requests.Cost(command), takeByMS: f.readingMS + c.patienceMS,
			id: fsm.RequestID{Origin: p.origin, Sequence: c.sequence},
		}
		p.server.config.Requests.AddForwarded(taken.id, requests.Forwarded{Stream: p, Listens: c.listens}) // before the command can be applied
		proposals = append(proposals, taken)
	}
	if !t.Propose(proposals) {
		for _, c := range proposals {
			c.Failed(outcome.Verdict{Fate: outcome.Refused})
		}
	}
}

// refuse replies to refused commands.
func (p *peerStream) refuse(commands []framedCommand, v outcome.Verdict) {
	p.outbox.add(func(m *pendingFrames) {
		for i := range commands {
			m.replies = append(m.replies, reply{sequence: commands[i].sequence, status: statusOf(v)})
		}
	})
}

// handleRead replies to a read ask. It confirms the read in a new goroutine.
func (p *peerStream) handleRead(ask readAsk) {
	reading := readReply{number: ask.number, status: statusRefused}
	t := p.server.config.Node.Leading()
	if t == nil || t.Number() != ask.term {
		p.outbox.addFrame(reading.append)
		return
	}
	select {
	case p.asks <- struct{}{}:
	default:
		reading.status = statusOverloaded
		p.outbox.addFrame(reading.append)
		return
	}
	go func() {
		defer func() { <-p.asks }()
		index, nowMS, err := t.ReadIndex(p.ctx)
		if err == nil {
			reading.status, reading.index, reading.nowMS = statusDone, index, nowMS
		}
		p.outbox.addFrame(reading.append)
	}()
}

// Deliver implements [requests.Stream].
func (p *peerStream) Deliver(d *requests.Delivery) {
	p.outbox.add(func(m *pendingFrames) {
		for _, r := range d.Results {
			m.replies = append(m.replies, reply{r.Sequence, statusDone, applied{d.Index, d.NowMS, r.Result}})
		}
		for _, e := range d.Conclusions {
			m.ends = append(m.ends, end{e.Place, applied{d.Index, d.NowMS, e.Result}})
		}
	})
}

// forwardedCommand is a command of another node that this node logs.
type forwardedCommand struct {
	framedCommand
	stream   *peerStream
	id       fsm.RequestID
	weight   int
	takeByMS int64 // the latest time, on the forwarding clock, at which it may arrive at this node
}

// Command implements [lead.Proposal].
func (c *forwardedCommand) Command() []byte { return c.data }

// Load implements [lead.Proposal].
func (c *forwardedCommand) Load() lead.Load {
	return lead.Load{Class: c.class, Weight: c.weight, Bytes: len(c.data)}
}

// WhyWithdrawn implements [lead.Proposal].
func (c *forwardedCommand) WhyWithdrawn() outcome.Verdict {
	if c.stream.fenced.Load() {
		return outcome.Verdict{Fate: outcome.Refused}
	}
	if c.stream.server.nowMS() > c.takeByMS+queueGrace.Milliseconds() {
		return outcome.Verdict{Fate: outcome.Late}
	}
	return outcome.Verdict{}
}

// Failed implements [lead.Proposal]. If the outcome is unknown it sends no reply: the origin's own machine settles the
// command.
func (c *forwardedCommand) Failed(v outcome.Verdict) {
	c.stream.server.config.Requests.RemoveForwarded(c.id, c.stream)
	if v.Fate == outcome.Unknown {
		return
	}
	c.stream.refuse([]framedCommand{c.framedCommand}, v)
}

package forward

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// testTerm is a term of a node whose log takes each command at once.
type testTerm struct {
	number  uint64
	replica *replica.Replica
	feed    *replica.FSM

	mu    sync.Mutex
	index uint64
}

func (l *testTerm) Number() uint64 { return l.number }

func (l *testTerm) Propose(commands []lead.Proposal) bool {
	var data [][]byte
	for _, c := range commands {
		if v := c.WhyWithdrawn(); v.Fate != outcome.Applied {
			c.Failed(v)
			continue
		}
		data = append(data, c.Command())
	}
	if len(data) > 0 {
		l.log(data...)
	}
	return true
}

func (l *testTerm) ProposeTick(context.Context) (uint64, error) { return l.log(), nil }

func (l *testTerm) ReadIndex(context.Context) (uint64, int64, error) {
	return l.replica.Index(), 1, nil
}

// log applies an entry.
func (l *testTerm) log(commands ...[]byte) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	l.feed.Apply(&raft.Log{Index: l.index, Term: l.number, Type: raft.LogCommand, Data: replica.EncodeTermEntry(l.number, int64(l.index), commands)})
	return l.index
}

// testNode is a node that leads in a term, or knows no leader.
type testNode struct{ term Term }

func (n testNode) Leading() Term                    { return n.term }
func (n testNode) Leader() (string, string, uint64) { return "", "", 0 }
func (n testNode) Dial(context.Context, string) (net.Conn, error) {
	return nil, outcome.ErrNoLeader
}

// testLeader is a node that leads in a term, with an empty semaphore "a".
type testLeader struct {
	Config
	*testTerm
	server *Server
}

func newTestLeader(number uint64) *testLeader {
	m := replica.New(replica.Config{})
	r := requests.New(10, m)
	term := &testTerm{number: number, replica: m}
	term.feed = m.FSM(replica.FSMConfig{Sinks: []replica.Sink{r}, SnapshotDue: func() {}})
	term.log(fsm.Envelope{}.Encode(fsm.StartTerm{Term: number, Leader: "n1", Cluster: fsm.ClusterID{1}, Level: fsm.FeatureLevel, Limits: fsm.DefaultLimits()}))
	term.log(fsm.Envelope{}.Encode(fsm.CreateSemaphore{Name: "a"}))
	config := Config{Log: hclog.NewNullLogger(), Requests: r, Replica: m, Node: testNode{term}}
	return &testLeader{config, term, NewServer(config)}
}

// value returns the permits of the semaphore.
func (l *testLeader) value() (value int64) {
	l.Replica.View(func(m *fsm.Machine) {
		view, _ := m.Semaphore("a")
		value = view.Available
	})
	return value
}

// testOrigin is another node's end of a stream to a server.
type testOrigin struct {
	t       *testing.T
	conn    net.Conn
	r       *bufio.Reader
	welcome clockFrame
	early   [][]byte // frames that came before the welcome, as a fence may
}

// openStream opens a stream to a server; welcome reports whether it gets a reading.
func openStream(t *testing.T, s *Server, hello helloFrame) (o *testOrigin, welcome bool) {
	near, far := net.Pipe()
	go s.Serve(far)
	o = &testOrigin{t: t, conn: near, r: bufio.NewReader(near)}
	t.Cleanup(func() { _ = near.Close() })
	o.write(hello.append(nil))
	for {
		frame, err := readFrame(o.r, nil)
		if err == nil && frameKind(frame[0]) != frameClock {
			o.early = append(o.early, frame)
			continue
		}
		if err == nil {
			o.welcome, err = decodeClock(frame[1:])
		}
		return o, err == nil
	}
}

func (o *testOrigin) write(frame []byte) {
	o.t.Helper()
	if _, err := o.conn.Write(frame); err != nil {
		o.t.Fatal(err)
	}
}

// send sends commands with their places as sequences.
func (o *testOrigin) send(commands ...[]byte) {
	o.t.Helper()
	f := commandsFrame{readingMS: o.welcome.readingMS}
	for i, data := range commands {
		f.commands = append(f.commands, framedCommand{sequence: uint64(i), patienceMS: 250, data: data})
	}
	o.write(f.append(nil))
}

// next reads on to a frame of a kind.
func (o *testOrigin) next(kind frameKind) []byte {
	o.t.Helper()
	for {
		var frame []byte
		var err error
		if len(o.early) > 0 {
			frame, o.early = o.early[0], o.early[1:]
		} else if frame, err = readFrame(o.r, nil); err != nil {
			o.t.Fatal(err)
		}
		if frameKind(frame[0]) == kind {
			return frame[1:]
		}
	}
}

// statuses reads the statuses of that many commands.
func (o *testOrigin) statuses(count int) []status {
	o.t.Helper()
	found := make([]status, count)
	for got := 0; got < count; {
		replies, err := decodeReplies(o.next(frameReplies))
		must(o.t, err)
		for _, r := range replies {
			found[r.sequence] = r.status
			got++
		}
	}
	return found
}

// ups returns commands of an origin, each of which adds a permit.
func ups(origin uint64, sequences ...uint64) (commands [][]byte) {
	for _, sequence := range sequences {
		id := fsm.RequestID{Origin: origin, Sequence: sequence}
		commands = append(commands, fsm.Envelope{Request: id}.Encode(fsm.Up{Name: "a", Count: 1}))
	}
	return commands
}

// TestFrameNamesItsTerm: a node that does not lead in the stream's term refuses all
// of it.
func TestFrameNamesItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		follower := leader.Config
		follower.Node = testNode{}
		for name, try := range map[string]struct {
			to   *Server
			term uint64
		}{
			"an earlier term": {leader.server, 2}, "a later term": {leader.server, 4}, "a follower": {NewServer(follower), 3},
		} {
			if _, welcome := openStream(t, try.to, helloFrame{term: try.term, origin: 77, number: 1}); welcome {
				t.Errorf("%s: the stream is welcome", name)
			}
		}
		o, _ := openStream(t, leader.server, helloFrame{term: 3, origin: 77, number: 1})
		o.send(ups(77, 0, 1)...)
		for i, got := range o.statuses(2) {
			if got != statusDone {
				t.Errorf("command %d to the leader in its term: status %d", i, got)
			}
		}
		if leader.value() != 2 {
			t.Errorf("%d were applied of 2", leader.value())
		}
	})
}

// TestStreamOfAnEarlierTermBringsNothing: its commands were meant for that term, and the node
// may have lost and won an election since the welcome.
func TestStreamOfAnEarlierTermBringsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		o, _ := openStream(t, leader.server, helloFrame{term: 3, origin: 77, number: 1})
		leader.number = 4
		o.send(ups(77, 0, 1)...)
		for i, got := range o.statuses(2) {
			if got != statusRefused {
				t.Errorf("command %d: status %d", i, got)
			}
		}
		if leader.value() != 0 {
			t.Errorf("%d were applied of an earlier term", leader.value())
		}
	})
}

// TestCommandThatComesTooLateIsRefused: its caller may have given up by the time that it gives.
func TestCommandThatComesTooLateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		o, _ := openStream(t, leader.server, helloFrame{term: 3, origin: 77, number: 1})
		time.Sleep(250 * time.Millisecond) // virtual: on its way, as long as send allows
		o.send(ups(77, 0)...)
		if got := o.statuses(1)[0]; got != statusDone {
			t.Errorf("in time: status %d", got)
		}
		time.Sleep(2 * time.Millisecond) // virtual
		o.send(ups(77, 0)...)
		if got := o.statuses(1)[0]; got != statusLate {
			t.Errorf("too late: status %d", got)
		}
		if leader.value() != 1 {
			t.Errorf("%d were applied of 1", leader.value())
		}
	})
}

// TestWhatIsNoCommandStaysOutOfTheLog: a command that this version can't apply
// would halt every node.
func TestWhatIsNoCommandStaysOutOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		o, _ := openStream(t, leader.server, helloFrame{term: 3, origin: 77, number: 1})
		good := ups(77, 1)[0]
		o.send([]byte{}, append(good[:2:2], 99, 0), good[:len(good)-1], append(good[:len(good):len(good)], 0))
		for i, got := range o.statuses(4) {
			want := statusUnknown
			if i == 0 { // names no level, so it may need any
				want = statusBelowLevel
			}
			if got != want {
				t.Errorf("%d: status %d", i, got)
			}
		}
		if leader.value() != 0 {
			t.Errorf("value %d", leader.value())
		}
		o.write([]byte{0, 0, 0, 2, byte(frameReplies), 0}) // what only a leader says
		began := time.Now()
		var err error
		for err == nil {
			_, err = readFrame(o.r, nil)
		}
		if !errors.Is(err, io.EOF) || time.Since(began) > clockEvery {
			t.Errorf("a stream with a wrong frame goes on: %v", err)
		}
	})
}

// TestIdleStreamBringsReadings of the leader's clock, again and again, at moments that all streams share.
func TestIdleStreamBringsReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		time.Sleep(70 * time.Millisecond) // virtual
		o, _ := openStream(t, leader.server, helloFrame{term: 3, origin: 77, number: 1})
		began := time.Now()
		for i := range 4 {
			frame, err := readFrame(o.r, nil)
			if err != nil || frameKind(frame[0]) != frameClock {
				t.Fatalf("frame %v, error %v", frame, err)
			}
			if want := began.Truncate(clockEvery).Add(time.Duration(i+1) * clockEvery); !time.Now().Equal(want) {
				t.Errorf("reading %d came %v after the welcome, want %v", i, time.Since(began), want.Sub(began))
			}
		}
	})
}

// TestFencedStreamBringsNothing: once a leader has welcomed a later stream of an
// origin, what the earlier one still brings is refused, and the fence is behind all
// that it has brought. A stream that comes after a later one is refused.
func TestFencedStreamBringsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		hello := helloFrame{term: 3, origin: 77, number: 5}
		old, _ := openStream(t, leader.server, hello)
		commands := ups(77, 0, 1)
		old.send(commands[0])
		if got := old.statuses(1); got[0] != statusDone {
			t.Fatalf("status %d on the first stream", got[0])
		}
		before := leader.Replica.Index()
		hello.number, hello.open = 6, true
		later, welcome := openStream(t, leader.server, hello)
		if !welcome {
			t.Fatal("the later stream is not welcome")
		}
		fence, err := decodeFence(later.next(frameFence))
		if err != nil || fence.index <= before {
			t.Errorf("the fence is %d, %v, not behind %d", fence.index, err, before)
		}
		old.send(commands...)
		for i, got := range old.statuses(2) {
			if got != statusRefused {
				t.Errorf("command %d on the fenced stream: status %d", i, got)
			}
		}
		hello.number = 4
		if _, welcome := openStream(t, leader.server, hello); welcome {
			t.Error("an earlier stream is welcome")
		}
		if leader.value() != 1 {
			t.Errorf("%d were applied of 1", leader.value())
		}
	})
}

// TestLateInTheLeadersQueue: a forwarded command that has waited too long in the
// leader's own queue is refused as late when its turn comes.
func TestLateInTheLeadersQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newTestLeader(3).server
		stream := newPeerStream(t.Context(), server, nil)
		command := func(sequence uint64) *forwardedCommand {
			return &forwardedCommand{
				stream: stream, framedCommand: framedCommand{sequence: sequence, data: []byte("y")},
				takeByMS: server.nowMS() + freshFor.Milliseconds(), id: fsm.RequestID{Origin: 7, Sequence: sequence},
			}
		}
		early := command(1)
		time.Sleep(freshFor + queueGrace + 5*time.Millisecond) // virtual: in the queue
		if v := command(2).WhyWithdrawn(); v.Fate != outcome.Applied {
			t.Errorf("a fresh command is withdrawn: %v", v)
		}
		v := early.WhyWithdrawn()
		if v.Fate != outcome.Late {
			t.Fatalf("after the wait: %v", v)
		}
		early.Failed(v)
		refused, _ := stream.outbox.takeAll(pendingFrames{})
		if len(refused.replies) != 1 || refused.replies[0].sequence != 1 || refused.replies[0].status != statusLate {
			t.Errorf("replies %+v", refused.replies)
		}
	})
}

// TestCommandAboveTheLevel: the leader takes no command of a level that is not in
// force, from its own callers and from other nodes.
func TestCommandAboveTheLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newTestLeader(3)
		last := leader.index
		q := leader.Requests.Build(fsm.DeleteSemaphore{Name: "db"}, fsm.Envelope{}, lead.ClassSingle, nil)
		q.Data[0]++ // the level that it names
		if err := NewRouter(leader.Config).SubmitHere(t.Context(), leader.testTerm, q); err != outcome.ErrBelowLevel {
			t.Errorf("a local one: %v", err)
		}
		o, _ := openStream(t, NewServer(leader.Config), helloFrame{term: 3, origin: 7, number: 1})
		o.send(q.Data)
		if got := o.statuses(1)[0]; got != statusBelowLevel {
			t.Errorf("a forwarded one: status %d", got)
		}
		if leader.index != last {
			t.Errorf("%d entries were logged", leader.index-last)
		}
	})
}

// TestCommandOfAGoneCallerIsNotSent: neither to another node nor into this one's log.
func TestCommandOfAGoneCallerIsNotSent(t *testing.T) {
	r := requests.New(10, replica.New(replica.Config{}))
	here, hangUp := context.WithCancel(t.Context())
	queued, held := linkRequest(here, r), linkRequest(here, r)
	if live, _ := r.MarkSent([]*requests.Request{queued}, 3, 0); len(live) != 1 {
		t.Fatal("not sent though its caller waits")
	}
	local := localCommand{queued, r, 3}
	if v := local.WhyWithdrawn(); v.Fate != outcome.Applied {
		t.Fatal(v)
	}
	hangUp()
	if live, ok := r.MarkSent([]*requests.Request{held}, 3, 0); !ok || len(live) != 0 {
		t.Error("sent though its caller is gone")
	}
	v := local.WhyWithdrawn()
	if v.Fate != outcome.Refused {
		t.Fatalf("not withdrawn though its caller is gone: %v", v)
	}
	local.Failed(v)
	if state, _, _ := r.Progress(queued); state != requests.Held {
		t.Errorf("state %d: the command is certainly not applied", state)
	}
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

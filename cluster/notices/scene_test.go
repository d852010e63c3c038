package notices

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

var errNobodyHome = errors.New("nobody home")

// scene is a sender with a replica whose log is a function call, in virtual time. It
// is the sender's notifier, term and host.
type scene struct {
	t       *testing.T
	replica *replica.Replica
	feed    *replica.FSM
	sender  *Sender
	began   time.Time
	log     bytes.Buffer

	mu       sync.Mutex
	last     *fsm.Applied
	lastAt   time.Time
	index    uint64
	full     bool // the log takes no entry
	deaf     bool // the sender gets no entry
	attempts []attempt
	underWay int
	most     int // under way at once
	reply    func(context.Context, fsm.NoticeView) error

	delivered, failed, givenUp int
}

type attempt struct {
	fsm.NoticeView
	at time.Time
}

// inScene runs a test with a sender whose attempts all succeed, until set is called.
func inScene(t *testing.T, config Config, test func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, replica: replica.New(replica.Config{}), began: time.Now()}
		config.Replica, config.Term, config.Results = s.replica, s, s
		config.Logger = hclog.New(&hclog.LoggerOptions{Output: &s.log, Level: hclog.Info})
		if config.Notifier == nil {
			config.Notifier = s
		}
		s.sender = NewSender(config)
		s.feed = s.replica.FSM(replica.FSMConfig{
			Sinks: []replica.Sink{s}, Fatal: func(err error) { t.Error(err) }, SnapshotDue: func() {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.sender.Run(ctx)
		}()
		test(s)
		cancel()
		<-ended
		if s.underWay != 0 {
			t.Errorf("%d attempts outlive the term", s.underWay)
		}
	})
}

func (s *scene) Applied(entry *fsm.Applied) {
	s.last = entry
	for i := range entry.Effects {
		if e := &entry.Effects[i]; e.Kind == fsm.EffectNoticeDue && !s.deaf {
			s.sender.Due(e.Place)
		}
	}
}

func (s *scene) SnapshotRestored(*fsm.Machine, uint64) {}

// do logs an entry with these commands.
func (s *scene) do(commands ...fsm.Command) (fsm.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return fsm.Result{}, errors.New("full")
	}
	var encoded [][]byte
	for _, c := range commands {
		encoded = append(encoded, fsm.Envelope{}.Encode(c))
	}
	s.index++
	s.lastAt = time.Now()
	s.feed.Apply(&raft.Log{Index: s.index, Term: 1, Type: raft.LogCommand, Data: replica.EncodeTermEntry(1, s.NowMS(), encoded)})
	if len(commands) == 0 {
		return fsm.Result{}, nil
	}
	return s.last.Commands[0].Result, nil
}

// must logs a command whose result is to have a code.
func (s *scene) must(c fsm.Command, want fsm.Code) fsm.Result {
	s.t.Helper()
	got, err := s.do(c)
	if err != nil || got.Code != want {
		s.t.Fatalf("%T: %v, %v, want %v", c, got.Code, err, want)
	}
	return got
}

// wish leaves a notice for a semaphore.
func (s *scene) wish(name, address string) uint64 {
	s.t.Helper()
	return s.must(fsm.Down{Name: name, Count: 1, Notice: address}, fsm.Unavailable).Place
}

// due returns how many notices are not removed yet.
func (s *scene) due() (count int) {
	s.replica.View(func(m *fsm.Machine) { count = len(m.DueNotices()) })
	return count
}

// all returns the attempts.
func (s *scene) all() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attempts)
}

// until waits, in virtual time.
func (s *scene) until(what string, condition func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Hour); !condition(); time.Sleep(50 * time.Millisecond) { // virtual
		if time.Now().After(end) {
			s.t.Fatalf("in vain: %s", what)
		}
	}
}

func (s *scene) NowMS() int64 { return time.Since(s.began).Milliseconds() }

func (s *scene) IdleFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.lastAt)
}

func (s *scene) ProposeTick(context.Context) (uint64, error) {
	_, err := s.do()
	return 0, err
}

func (s *scene) RemoveNotice(_ context.Context, id uint64) error {
	_, err := s.do(fsm.NoticeDone{IDs: []uint64{id}})
	return err
}

func (s *scene) NoticeDelivered() { s.count(&s.delivered) }
func (s *scene) NoticeFailed()    { s.count(&s.failed) }
func (s *scene) NoticeGivenUp()   { s.count(&s.givenUp) }

func (s *scene) count(what *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what++
}

func (s *scene) Notify(ctx context.Context, n fsm.NoticeView) error {
	s.mu.Lock()
	s.attempts = append(s.attempts, attempt{n, time.Now()})
	s.underWay++
	s.most = max(s.most, s.underWay)
	reply := s.reply
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underWay--
	}()
	if reply == nil {
		return nil
	}
	return reply(ctx, n)
}

func (s *scene) Host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

func (s *scene) setFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *scene) setDeaf(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

// set says how an attempt comes out from now on; nil: well.
func (s *scene) set(reply func(context.Context, fsm.NoticeView) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

func nobodyHome(context.Context, fsm.NoticeView) error { return errNobodyHome }

// silence accepts and never replies.
func silence(ctx context.Context, _ fsm.NoticeView) error {
	<-ctx.Done()
	return ctx.Err()
}

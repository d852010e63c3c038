package notices

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// TestDelivers notices when they are due and not before, once, and has them removed.
func TestDelivers(t *testing.T) {
	inScene(t, Config{}, func(s *scene) {
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		id := s.wish("a", "http://hooks.example/")
		synctest.Wait()
		if got := s.all(); len(got) != 0 {
			t.Fatalf("nothing is due, and %v was delivered", got)
		}
		s.must(fsm.Up{Name: "a", Count: 3}, fsm.OK)
		s.sender.Restored() // knows it a second time
		s.until("it is removed", func() bool { return s.due() == 0 })
		if got := s.all(); len(got) != 1 || got[0].ID != id || got[0].Available != 3 {
			t.Errorf("delivered %+v", got)
		}
		if s.delivered != 1 || s.failed != 0 || s.givenUp != 0 {
			t.Errorf("%d delivered, %d failed, %d given up", s.delivered, s.failed, s.givenUp)
		}
	})
}

// TestNoticeUnderWayIsNotBegunAgain, however often the sender learns that it is due.
func TestNoticeUnderWayIsNotBegunAgain(t *testing.T) {
	inScene(t, Config{}, func(s *scene) {
		reply := make(chan struct{})
		s.set(func(context.Context, fsm.NoticeView) error {
			<-reply
			return nil
		})
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		id := s.wish("a", "http://hooks.example/")
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		synctest.Wait()
		for range 3 {
			s.sender.Due(id)
			s.sender.Restored()
			synctest.Wait()
		}
		if got := s.all(); len(got) != 1 {
			t.Errorf("%d attempts at once", len(got))
		}
		close(reply)
		s.until("it is removed", func() bool { return s.due() == 0 })
	})
}

// TestDeliversNoticesOfAnEarlierTerm: a sender that begins looks at all of them.
func TestDeliversNoticesOfAnEarlierTerm(t *testing.T) {
	inScene(t, Config{}, func(s *scene) {
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		s.wish("a", "http://hooks.example/")
		s.setDeaf(true)
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		synctest.Wait()
		if got := s.all(); len(got) != 0 {
			t.Fatalf("the sender knows of %v", got)
		}
		s.sender.Restored()
		s.until("it is removed", func() bool { return s.due() == 0 })
	})
}

// TestTriesAgain with pauses that double up to 15 s; each attempt has the permits that
// are available then.
func TestTriesAgain(t *testing.T) {
	inScene(t, Config{}, func(s *scene) {
		s.set(nobodyHome)
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		s.wish("a", "http://hooks.example/")
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		s.until("six attempts", func() bool { return len(s.all()) == 6 })
		s.set(nil)
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		s.until("it is delivered", func() bool { return s.due() == 0 })
		got := s.all()
		if len(got) != 7 {
			t.Fatalf("%d attempts", len(got))
		}
		for i, pause := range []time.Duration{1, 2, 4, 8, 15, 15} {
			if took := got[i+1].at.Sub(got[i].at); took != pause*time.Second {
				t.Errorf("pause %d is %v, want %ds", i+1, took, pause)
			}
		}
		if got[5].Available != 1 || got[6].Available != 2 {
			t.Errorf("available %d, then %d", got[5].Available, got[6].Available)
		}
		if got[0].DueMS != got[6].DueMS {
			t.Error("the time since when it is due has moved")
		}
		if s.delivered != 1 || s.failed != 6 || s.givenUp != 0 {
			t.Errorf("%d delivered, %d failed, %d given up", s.delivered, s.failed, s.givenUp)
		}
	})
}

// TestGivesUp: ten minutes after a notice was due, on an idle cluster and for slow
// addresses as well, and without a notifier, too.
func TestGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		reply  func(context.Context, fsm.NoticeView) error
		last   error
		least  int // attempts
	}{
		"quick":       {Config{}, nobodyHome, errNobodyHome, 40},
		"slow":        {Config{}, silence, context.DeadlineExceeded, 20},
		"no notifier": {Config{Notifier: noNotifier{}}, nil, errNoNotifier, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, c.config, func(s *scene) {
				s.set(c.reply)
				s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
				time.Sleep(keptFor) // virtual: the time before it is due does not count
				s.wish("a", "http://hooks.example/")
				s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
				due := time.Now()
				time.Sleep(keptFor - time.Second) // virtual
				if s.due() != 1 {
					t.Fatal("given up already")
				}
				s.until("it is given up", func() bool { return s.due() == 0 })
				if took := time.Since(due); took > keptFor+attemptTimeout+pauseMost+time.Second {
					t.Errorf("given up after %v", took)
				}
				if s.givenUp != 1 || s.delivered != 0 || len(s.attempts) < c.least || len(s.attempts) > 50 {
					t.Errorf("%d given up, %d delivered, in %d attempts", s.givenUp, s.delivered, len(s.attempts))
				}
				if text := s.log.String(); strings.Count(text, "a notice was given up") != 1 || !strings.Contains(text, c.last.Error()) {
					t.Errorf("logged %q, want it with %q", text, c.last)
				}
				before := s.index
				time.Sleep(keptFor) // virtual
				if s.index != before {
					t.Errorf("%d entries after it was given up", s.index-before)
				}
			})
		})
	}
}

// TestBoundsTheAttempts: as many at once as there is room for, and the others in turn.
func TestBoundsTheAttempts(t *testing.T) {
	var release chan struct{}
	inScene(t, Config{}, func(s *scene) {
		release = make(chan struct{}) // of the bubble
		s.set(func(ctx context.Context, _ fsm.NoticeView) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		const wanted = 100
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		for i := range wanted {
			s.wish("a", fmt.Sprintf("http://hooks%d.example/", i))
		}
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		synctest.Wait()
		if got := len(s.all()); got != atOnce {
			t.Errorf("%d attempts under way, want %d", got, atOnce)
		}
		close(release)
		s.until("all are delivered", func() bool { return s.due() == 0 })
		if s.delivered != wanted || len(s.all()) != wanted || s.most != atOnce {
			t.Errorf("%d of %d delivered in %d attempts, %d at once", s.delivered, wanted, len(s.all()), s.most)
		}
	})
}

// TestSilentHost: one that accepts and never replies delays its own notices only. Not one
// of them is tried once it is too old, however long it waited for its turn.
func TestSilentHost(t *testing.T) {
	inScene(t, Config{}, func(s *scene) {
		s.set(func(ctx context.Context, n fsm.NoticeView) error {
			if strings.Contains(n.URL, "healthy") {
				return nil
			}
			return silence(ctx, n)
		})
		const silent = 300
		for i := range 3 {
			name := fmt.Sprint(i)
			s.must(fsm.CreateSemaphore{Name: name}, fsm.OK)
			for range silent / 3 {
				s.wish(name, "http://silent.example/")
			}
			s.must(fsm.Up{Name: name, Count: 1}, fsm.OK)
		}
		s.must(fsm.CreateSemaphore{Name: "b"}, fsm.OK)
		s.wish("b", "http://healthy.example/")
		due := time.Now()
		synctest.Wait()
		if got := len(s.all()); got != toHost {
			t.Errorf("%d attempts to one host under way, want %d", got, toHost)
		}
		s.must(fsm.Up{Name: "b", Count: 1}, fsm.OK)
		freed := time.Now()
		s.until("the other is delivered", func() bool { return s.due() == silent })
		if took := time.Since(freed); took >= attemptTimeout {
			t.Errorf("the other host got its notice %v later", took)
		}
		s.until("all are given up", func() bool { return s.due() == 0 })
		for _, a := range s.all() {
			if late := a.at.Sub(due); late > keptFor+time.Second {
				t.Errorf("notice %d was tried %v after it was due", a.ID, late)
			}
		}
		if lines := strings.Count(s.log.String(), errNoTurn.Error()); lines == 0 || lines == silent {
			t.Errorf("%d of %d were given up without an attempt", lines, silent)
		}
		if s.most > toHost+1 {
			t.Errorf("%d attempts at once", s.most)
		}
	})
}

// TestRemovesLater: when the log takes no entry just then, a notice that was delivered
// is removed once it does, and not delivered again.
func TestRemovesLater(t *testing.T) {
	inScene(t, Config{}, func(s *scene) {
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		s.wish("a", "http://hooks.example/")
		s.set(func(context.Context, fsm.NoticeView) error {
			s.setFull(true)
			return nil
		})
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		time.Sleep(30 * time.Second) // virtual: the log takes no entry
		if s.due() != 1 || len(s.all()) != 1 {
			t.Fatalf("%d due after %d attempts", s.due(), len(s.all()))
		}
		s.setFull(false)
		s.until("it is removed", func() bool { return s.due() == 0 })
		if got := s.all(); len(got) != 1 {
			t.Errorf("delivered %d times", len(got))
		}
	})
}

// TestEndsWithItsTerm: an attempt under way ends with the term, and is no failure of
// its address.
func TestEndsWithItsTerm(t *testing.T) {
	var s *scene
	inScene(t, Config{}, func(in *scene) {
		s = in
		s.set(silence)
		s.must(fsm.CreateSemaphore{Name: "a"}, fsm.OK)
		s.wish("a", "http://hooks.example/")
		s.must(fsm.Up{Name: "a", Count: 1}, fsm.OK)
		synctest.Wait()
		if len(s.all()) != 1 {
			t.Fatalf("%d attempts", len(s.all()))
		}
	})
	if s.failed != 0 || s.givenUp != 0 || s.delivered != 0 || s.due() != 1 {
		t.Errorf("%d failed, %d given up, %d delivered, %d due", s.failed, s.givenUp, s.delivered, s.due())
	}
}

// TestTurnsAreForgotten: hosts are forgotten with their last attempt, whether it was
// made or given up while it waited.
func TestTurnsAreForgotten(t *testing.T) {
	limiter := newLimiter()
	var leaves []func()
	for i := range atOnce {
		leave, err := limiter.acquire(t.Context(), fmt.Sprint(i%(atOnce/toHost)))
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, host := range []string{"0", "another"} { // full: for the host, in all
		if _, err := limiter.acquire(ended, host); !errors.Is(err, context.Canceled) {
			t.Errorf("host %s: %v", host, err)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if len(limiter.hosts) != 0 || !limiter.all.TryAcquire(atOnce) {
		t.Errorf("%d hosts are left", len(limiter.hosts))
	}
}

package consulclient

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

// lockCases are what Consul's own tests ask of its locks.
var lockCases = []checklistCase{
	{"lock and unlock", lockAndUnlock},
	{"lock of a destroyed session", lockOfADestroyedSession},
	{"lock whose key is deleted", lockWhoseKeyIsDeleted},
	{"lock for contenders", lockForContenders},
	{"lock destroyed", lockDestroyed},
	{"lock on a semaphore", lockOnASemaphore},
	{"lock reclaimed", lockReclaimed},
	{"lock monitored through errors", lockMonitored},
	{"lock in one shot", lockInOneShot},
}

func lockAndUnlock(s *site) {
	lock, _ := s.lock("l")
	s.fails(lock.Unlock(), api.ErrLockNotHeld)
	lost := s.gets(lock.Lock)
	_, err := lock.Lock(nil)
	s.fails(err, api.ErrLockHeld)
	s.holds(lost)
	s.ok(lock.Unlock())
	s.fails(lock.Unlock(), api.ErrLockNotHeld)
	s.loses(lost)
}

func lockOfADestroyedSession(s *site) {
	lock, session := s.lock("l")
	lost := s.gets(lock.Lock)
	_, err := s.Session().Destroy(session, nil)
	s.ok(err)
	s.within(time.Second, s.loses(lost))
}

// lockWhoseKeyIsDeleted has ten rounds, each with a new session: an operator's delete
// lets a holder stop, and leaves no delay.
func lockWhoseKeyIsDeleted(s *site) {
	for range 10 {
		lock, _ := s.lock("l")
		lost := s.gets(lock.Lock)
		_, err := s.KV().Delete(s.prefix+"l", nil)
		s.ok(err)
		s.loses(lost)
		s.ok(lock.Unlock())
	}
}

func lockForContenders(s *site) {
	var all sync.WaitGroup
	var inside, acquired atomic.Int64
	for range 3 {
		lock, _ := s.lock("l")
		all.Go(func() {
			if lost, err := lock.Lock(nil); err != nil || lost == nil {
				s.Errorf("not acquired: %v", err)
				return
			}
			works(s.T, &inside, 1, func() { acquired.Add(1) })
			if err := lock.Unlock(); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
	s.check(acquired.Load() == 3, "%d of 3 acquired", acquired.Load())
}

func lockDestroyed(s *site) {
	lock, _ := s.lock("l")
	other, _ := s.lock("l")
	s.gets(lock.Lock)
	s.fails(lock.Destroy(), api.ErrLockHeld)
	s.ok(lock.Unlock())
	s.gets(other.Lock)
	s.fails(lock.Destroy(), api.ErrLockInUse)
	s.ok(other.Unlock())
	s.ok(lock.Destroy())
	s.ok(other.Destroy())
	pair, _, err := s.KV().Get(s.prefix+"l", nil)
	s.check(err == nil && pair == nil, "%v %v", pair, err)
}

func lockOnASemaphore(s *site) {
	semaphore, _ := s.semaphore("p/", 2)
	s.gets(semaphore.Acquire)
	lock, _ := s.lock("p/.lock")
	_, err := lock.Lock(nil)
	s.fails(err, api.ErrLockConflict)
	s.fails(lock.Destroy(), api.ErrLockConflict)
	s.ok(semaphore.Release())
}

func lockReclaimed(s *site) {
	session, _, err := s.Session().Create(&api.SessionEntry{}, nil)
	s.ok(err)
	defer func() { _, _ = s.Session().Destroy(session, nil) }()
	options := api.LockOptions{Key: s.prefix + "l", Session: session}
	first, second := s.lockOf(options), s.lockOf(options)
	lost := s.gets(first.Lock)
	began := time.Now()
	lostToo := s.gets(second.Lock)
	s.within(time.Second, time.Since(began))
	s.ok(second.Unlock())
	s.loses(lost)
	s.loses(lostToo)
}

func lockMonitored(s *site) {
	r := s.relay()
	through := *s
	through.Client = client(s.T, r.address)
	lock := through.lockOf(api.LockOptions{Key: s.prefix + "l", SessionTTL: "60s", MonitorRetries: 3, MonitorRetryTime: 50 * time.Millisecond})
	lost := s.gets(lock.Lock)
	s.monitored(r, lost, func(round byte) {
		pair, _, err := s.KV().Get(s.prefix+"l", nil)
		s.ok(err)
		pair.Value = []byte{round}
		_, err = s.KV().Put(pair, nil)
		s.ok(err)
	})
	s.ok(lock.Unlock())
}

func lockInOneShot(s *site) {
	options := api.LockOptions{Key: s.prefix + "l", LockTryOnce: true, LockWaitTime: 250 * time.Millisecond}
	lock, contender := s.lockOf(options), s.lockOf(options)
	lost := s.gets(lock.Lock)
	began := time.Now()
	got, err := contender.Lock(nil)
	s.ok(err)
	s.check(got == nil, "two hold the lock")
	took := time.Since(began)
	s.check(took >= options.LockWaitTime, "gave up after %v", took)
	s.within(500*time.Millisecond, took)
	s.ok(lock.Unlock())
	s.loses(lost)
	s.gets(contender.Lock)
	s.ok(contender.Unlock())
}

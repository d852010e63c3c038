package consulclient

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

// semaphoreCases are what Consul's own tests ask of its semaphores.
var semaphoreCases = []checklistCase{
	{"semaphore acquire and release", semaphoreAcquireAndRelease},
	{"semaphore of a destroyed session", semaphoreOfADestroyedSession},
	{"semaphore whose prefix is deleted", semaphoreWhosePrefixIsDeleted},
	{"semaphore for contenders", semaphoreForContenders},
	{"semaphore of another limit", semaphoreOfAnotherLimit},
	{"semaphore destroyed", semaphoreDestroyed},
	{"semaphore on a lock", semaphoreOnALock},
	{"semaphore monitored through errors", semaphoreMonitored},
	{"semaphore in one shot", semaphoreInOneShot},
}

func semaphoreAcquireAndRelease(s *site) {
	semaphore, _ := s.semaphore("p/", 2)
	s.fails(semaphore.Release(), api.ErrSemaphoreNotHeld)
	lost := s.gets(semaphore.Acquire)
	_, err := semaphore.Acquire(nil)
	s.fails(err, api.ErrSemaphoreHeld)
	s.holds(lost)
	s.ok(semaphore.Release())
	s.fails(semaphore.Release(), api.ErrSemaphoreNotHeld)
	s.loses(lost)
}

func semaphoreOfADestroyedSession(s *site) {
	semaphore, session := s.semaphore("p/", 2)
	lost := s.gets(semaphore.Acquire)
	_, err := s.Session().Destroy(session, nil)
	s.ok(err)
	s.within(time.Second, s.loses(lost))
}

func semaphoreWhosePrefixIsDeleted(s *site) {
	semaphore, _ := s.semaphore("p/", 2)
	lost := s.gets(semaphore.Acquire)
	_, err := s.KV().DeleteTree(s.prefix+"p", nil)
	s.ok(err)
	s.within(time.Second, s.loses(lost))
}

func semaphoreForContenders(s *site) {
	var all sync.WaitGroup
	var inside, acquired atomic.Int64
	began := time.Now()
	for range 4 {
		semaphore, _ := s.semaphore("p/", 2)
		all.Go(func() {
			if lost, err := semaphore.Acquire(nil); err != nil || lost == nil {
				s.Errorf("not acquired: %v", err)
				return
			}
			works(s.T, &inside, 2, func() { acquired.Add(1) })
			if err := semaphore.Release(); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
	s.check(acquired.Load() == 4, "%d of 4 acquired", acquired.Load())
	s.within(15*time.Second, time.Since(began))
}

func semaphoreOfAnotherLimit(s *site) {
	semaphore, _ := s.semaphore("p/", 1)
	lost := s.gets(semaphore.Acquire)
	other, _ := s.semaphore("p/", 2)
	_, err := other.Acquire(nil)
	s.check(err != nil && err.Error() == "semaphore limit conflict (lock: 1, local: 2)", "error %v", err)
	s.holds(lost)
	s.ok(semaphore.Release())
}

func semaphoreDestroyed(s *site) {
	semaphore, _ := s.semaphore("p/", 2)
	other, _ := s.semaphore("p/", 2)
	s.gets(semaphore.Acquire)
	s.gets(other.Acquire)
	s.fails(semaphore.Destroy(), api.ErrSemaphoreHeld)
	s.ok(semaphore.Release())
	s.fails(semaphore.Destroy(), api.ErrSemaphoreInUse)
	s.ok(other.Release())
	s.ok(semaphore.Destroy())
	s.ok(other.Destroy())
}

func semaphoreOnALock(s *site) {
	lock, _ := s.lock("p/.lock")
	s.gets(lock.Lock)
	semaphore, _ := s.semaphore("p/", 2)
	_, err := semaphore.Acquire(nil)
	s.fails(err, api.ErrSemaphoreConflict)
	s.fails(semaphore.Destroy(), api.ErrSemaphoreConflict)
	s.ok(lock.Unlock())
}

func semaphoreMonitored(s *site) {
	r := s.relay()
	through := *s
	through.Client = client(s.T, r.address)
	semaphore := through.semaphoreOf(api.SemaphoreOptions{Prefix: s.prefix + "p/", Limit: 2, SessionTTL: "60s",
		MonitorRetries: 3, MonitorRetryTime: 50 * time.Millisecond})
	lost := s.gets(semaphore.Acquire)
	s.monitored(r, lost, func(byte) {
		pairs, _, err := s.KV().List(s.prefix+"p/", nil)
		s.ok(err)
		for _, pair := range pairs {
			if strings.HasSuffix(pair.Key, api.DefaultSemaphoreKey) {
				pair.Value = append(pair.Value, ' ') // behind the JSON
				_, err = s.KV().Put(pair, nil)
				s.ok(err)
				return
			}
		}
		s.Fatal("no " + api.DefaultSemaphoreKey)
	})
	s.ok(semaphore.Release())
}

func semaphoreInOneShot(s *site) {
	options := api.SemaphoreOptions{Prefix: s.prefix + "p/", Limit: 2, SemaphoreTryOnce: true, SemaphoreWaitTime: 250 * time.Millisecond}
	first, second, contender := s.semaphoreOf(options), s.semaphoreOf(options), s.semaphoreOf(options)
	lost := s.gets(first.Acquire)
	s.gets(second.Acquire)
	began := time.Now()
	got, err := contender.Acquire(nil)
	s.ok(err)
	s.check(got == nil, "three hold a semaphore of 2")
	took := time.Since(began)
	s.check(took >= options.SemaphoreWaitTime, "gave up after %v", took)
	s.ok(first.Release())
	s.loses(lost)
	s.gets(contender.Acquire)
	s.ok(contender.Release())
	s.ok(second.Release())
}

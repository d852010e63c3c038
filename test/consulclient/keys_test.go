package consulclient

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

// keyCases are what Consul's own tests ask of keys.
var keyCases = []checklistCase{
	{"key put, get, delete", keyPutGetDelete},
	{"key list and recursive delete", keyListAndDelete},
	{"key names", keyNames},
	{"key cas", keyCAS},
	{"key delete by cas", keyDeleteCAS},
	{"key watched", keyWatched},
	{"key list watched", keyListWatched},
	{"key acquire and release", keyAcquireAndRelease},
}

// get expects a key.
func (s *site) get(key string) (*api.KVPair, *api.QueryMeta) {
	s.Helper()
	pair, meta, err := s.KV().Get(s.prefix+key, nil)
	s.ok(err)
	s.check(pair != nil, "no %s", key)
	s.read(meta)
	return pair, meta
}

// lacks expects that there is no such key.
func (s *site) lacks(key string) {
	s.Helper()
	pair, meta, err := s.KV().Get(s.prefix+key, nil)
	s.check(err == nil && pair == nil && meta.LastIndex > 0, "%+v %v", pair, err)
}

func (s *site) put(pair api.KVPair) {
	s.Helper()
	pair.Key = s.prefix + pair.Key
	_, err := s.KV().Put(&pair, nil)
	s.ok(err)
}

func keyPutGetDelete(s *site) {
	s.lacks("k")
	for _, value := range [][]byte{[]byte("test"), nil, {0, 255, '"', '\n'}, bytes.Repeat([]byte("v"), 512<<10)} {
		for _, flags := range []uint64{0, 42, math.MaxUint64} {
			s.put(api.KVPair{Key: "k", Value: value, Flags: flags})
			pair, meta := s.get("k")
			s.check(bytes.Equal(pair.Value, value) && pair.Flags == flags && pair.Session == "" && pair.LockIndex == 0 && meta.LastIndex == pair.ModifyIndex &&
				pair.CreateIndex <= pair.ModifyIndex, "%+v of %d bytes, %+v", pair.Flags, len(value), meta)
		}
	}
	_, err := s.KV().Put(&api.KVPair{Key: s.prefix + "k", Value: make([]byte, 512<<10+1)}, nil)
	s.check(err != nil, "a value above 512 KiB was taken")
	_, err = s.KV().Put(&api.KVPair{Key: "/" + s.prefix}, nil)
	s.check(err != nil, "a name that begins with a slash was taken") // the client refuses it
	_, err = s.KV().Delete(s.prefix+"k", nil)
	s.ok(err)
	s.lacks("k")
}

func keyListAndDelete(s *site) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("%sk/%02d", s.prefix, i))
		s.put(api.KVPair{Key: fmt.Sprintf("k/%02d", i), Value: []byte("test")})
	}
	pairs, meta, err := s.KV().List(s.prefix, nil)
	s.ok(err)
	s.read(meta)
	var got []string
	for _, pair := range pairs {
		got = append(got, pair.Key)
	}
	s.check(slices.Equal(got, names), "%v", got)
	_, err = s.KV().DeleteTree(s.prefix, nil)
	s.ok(err)
	pairs, _, err = s.KV().List(s.prefix, nil)
	s.check(err == nil && len(pairs) == 0, "%d left, %v", len(pairs), err)
}

func keyNames(s *site) {
	for _, name := range []string{"a", "b/1", "b/2", "b/c/3", "d/"} {
		s.put(api.KVPair{Key: name})
	}
	for separator, want := range map[string][]string{"": {"a", "b/1", "b/2", "b/c/3", "d/"}, "/": {"a", "b/", "d/"}} {
		for i := range want {
			want[i] = s.prefix + want[i]
		}
		names, meta, err := s.KV().Keys(s.prefix, separator, nil)
		s.ok(err)
		s.read(meta)
		s.check(reflect.DeepEqual(names, want), "%v", names)
	}
}

// cas expects the outcome of a check-and-set.
func (s *site) cas(version uint64, want bool) {
	s.Helper()
	did, _, err := s.KV().CAS(&api.KVPair{Key: s.prefix + "k", Value: []byte(fmt.Sprint(version)), ModifyIndex: version}, nil)
	s.check(err == nil && did == want, "cas=%d: %v %v", version, did, err)
}

func keyCAS(s *site) {
	s.cas(0, true)
	s.cas(0, false)
	pair, meta := s.get("k")
	s.cas(1, false)
	s.cas(pair.ModifyIndex+1, false)
	s.cas(pair.ModifyIndex, true)
	s.cas(pair.ModifyIndex, false)
	_, later := s.get("k")
	s.check(later.LastIndex > meta.LastIndex, "index %d after %d", later.LastIndex, meta.LastIndex)
}

func keyDeleteCAS(s *site) {
	s.put(api.KVPair{Key: "k"})
	pair, _ := s.get("k")
	for _, row := range []struct {
		version uint64
		want    bool
	}{{pair.ModifyIndex - 1, false}, {pair.ModifyIndex + 1, false}, {pair.ModifyIndex, true}, {pair.ModifyIndex, true}} {
		did, _, err := s.KV().DeleteCAS(&api.KVPair{Key: pair.Key, ModifyIndex: row.version}, nil)
		s.check(err == nil && did == row.want, "version %d: %v %v", row.version, did, err)
	}
	s.lacks("k")
}

// keyWatched: a watch of an absent key, and of one that is there.
func keyWatched(s *site) {
	s.lacks("k")
	_, meta, err := s.KV().Get(s.prefix+"k", nil)
	s.ok(err)
	for _, value := range []string{"first", "second"} {
		later := s.later(func() { s.put(api.KVPair{Key: "k", Value: []byte(value)}) })
		pair, next, err := s.KV().Get(s.prefix+"k", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: soon})
		later()
		s.ok(err)
		s.check(pair != nil && string(pair.Value) == value && next.LastIndex > meta.LastIndex, "%+v, index %d after %d", pair, next.LastIndex, meta.LastIndex)
		meta = next
	}
	later := s.later(func() { s.put(api.KVPair{Key: "other"}) })
	began := time.Now()
	_, next, err := s.KV().Get(s.prefix+"k", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 500 * time.Millisecond})
	later()
	s.check(err == nil && next.LastIndex == meta.LastIndex && time.Since(began) >= 500*time.Millisecond, "a change of another key ended a wait after %v: %v", time.Since(began), err)
}

// keyListWatched: a watch of an empty list, of a new key in it, and of a delete.
func keyListWatched(s *site) {
	_, meta, err := s.KV().List(s.prefix, nil)
	s.ok(err)
	meta = s.watchList(meta, 1, func() { s.put(api.KVPair{Key: "a"}) })
	meta = s.watchList(meta, 2, func() { s.put(api.KVPair{Key: "b/c"}) })
	s.watchList(meta, 0, func() { _, _ = s.KV().DeleteTree(s.prefix, nil) })
}

// watchList expects that a change ends a watch, with so many keys.
func (s *site) watchList(meta *api.QueryMeta, want int, change func()) *api.QueryMeta {
	s.Helper()
	later := s.later(change)
	pairs, next, err := s.KV().List(s.prefix, &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: soon})
	later()
	s.ok(err)
	s.check(len(pairs) == want && next.LastIndex > meta.LastIndex, "%d keys, index %d after %d", len(pairs), next.LastIndex, meta.LastIndex)
	return next
}

// later makes a change while the caller waits, if the machine is not too busy; else before or after, which
// must come to the same. The function that it returns waits until the change is made.
func (s *site) later(change func()) (made func()) {
	done := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() {
		defer close(done)
		change()
	})
	return func() { <-done }
}

func keyAcquireAndRelease(s *site) {
	session := s.session(api.SessionEntry{})
	entry := &api.KVPair{Key: s.prefix + "k", Value: []byte("test"), Session: session}
	did, _, err := s.KV().Acquire(entry, nil)
	s.check(err == nil && did, "%v", err)
	pair, meta := s.get("k")
	s.check(pair.LockIndex == 1 && pair.Session == session, "%+v", pair)
	other := s.session(api.SessionEntry{})
	did, _, err = s.KV().Acquire(&api.KVPair{Key: s.prefix + "k", Session: other}, nil)
	s.check(err == nil && !did, "two sessions hold a key: %v", err)
	did, _, err = s.KV().Release(entry, nil)
	s.check(err == nil && did, "%v", err)
	pair, later := s.get("k")
	s.check(pair.LockIndex == 1 && pair.Session == "" && later.LastIndex > meta.LastIndex, "%+v", pair)
	did, _, err = s.KV().Acquire(&api.KVPair{Key: s.prefix + "k", Session: other}, nil)
	s.check(err == nil && did, "%v", err)
	pair, _ = s.get("k")
	s.check(pair.LockIndex == 2, "%+v", pair)
}

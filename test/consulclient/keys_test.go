package consulclient

import (
	"bytes"
	"math"
	"time"

	"github.com/hashicorp/consul/api"
)

// keyCases are what Consul's own tests ask of keys, as far as its client does more than to send a request:
// httpapi/consul/testdata has the replies.
var keyCases = []checklistCase{
	{"key put, get, delete", keyPutGetDelete},
	{"key watched", keyWatched},
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

package fsm

import "crypto/sha256"

// chain moves the state hash on: h ← H(h, index, entry, results, conclusions,
// effects), 128 bits of SHA-256. Its cost goes with the entry, not with the
// state; two machines with the same hash have applied the same entries and
// said the same about each.
func (m *Machine) chain(index uint64, data []byte, applied *Applied) {
	e := &m.output
	e.buf = append(e.buf[:0], m.hash[:]...)
	e.uint(index)
	e.uint(uint64(len(data)))
	e.buf = append(e.buf, data...)
	for i := range applied.Commands {
		e.result(&applied.Commands[i].Result)
	}
	e.uint(uint64(len(applied.Conclusions)))
	for i := range applied.Conclusions {
		e.uint(applied.Conclusions[i].Place)
		e.result(&applied.Conclusions[i].Result)
	}
	e.uint(uint64(len(applied.Effects)))
	e.feature = m.feature
	for i := range applied.Effects {
		e.effect(&applied.Effects[i])
	}
	sum := sha256.Sum256(e.buf)
	copy(m.hash[:], sum[:])
	if cap(e.buf) > 1<<20 {
		e.buf = nil // one huge entry must not pin its scratch for ever
	}
}

func (e *encoder) effect(f *Effect) {
	e.byte(byte(f.Kind))
	e.byte(byte(f.Cause))
	e.byte(byte(f.Mode))
	e.bool(f.Unowned)
	e.bool(f.Partial)
	e.bool(f.Listed)
	e.bool(f.OneShot)
	e.string(f.Semaphore)
	e.uint(f.Epoch)
	e.uint(f.Session)
	e.uint(f.Place)
	e.uint(f.Token)
	e.int(f.Count)
	e.int(f.Permits)
	e.int(f.Offset)
	e.int(f.TTLMS)
	e.int(f.DeadlineMS)
	e.level(f.Level)
	e.pairs(f.Metadata)
	e.string(f.Reason)
	if e.feature >= 1 {
		e.string(f.Trace)
	}
}

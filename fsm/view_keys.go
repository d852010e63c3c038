package fsm

// KeysView is how full the table of idempotency keys is: what it has, and what the
// limits in force let it have.
type KeysView struct {
	Keys, MostKeys   int64 // with an outcome, or waiting for one
	Bytes, MostBytes int64 // of these keys and outcomes
	Marks, MostMarks int64 // of keys whose lease is over
}

// Keys returns how full the table of idempotency keys is.
func (m *Machine) Keys() KeysView {
	return KeysView{
		Keys: int64(m.keys.live), MostKeys: m.limits.Keys,
		Bytes: m.keyBytes, MostBytes: m.limits.KeyBytes,
		Marks: int64(m.marks.length), MostMarks: m.limits.marksLimit(),
	}
}

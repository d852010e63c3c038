package fsm

// LinePlace is the place of a request in the order of the waiting requests of a semaphore.
type LinePlace struct {
	Group  string
	RankMS int64
	Place  uint64
}

// Groups is a stub.
func (m *Machine) Groups(name, from string, waiting bool, limit int) (found []GroupView, next string, more bool) {
	return nil, "", false
}

// Group is a stub.
func (m *Machine) Group(name, group string) (GroupView, bool) { return GroupView{}, false }

// HoldersOf is a stub.
func (m *Machine) HoldersOf(name, group string, after uint64, limit int) (found []LeaseView, next uint64, more bool) {
	return nil, 0, false
}

// WaitersOf is a stub.
func (m *Machine) WaitersOf(name, group string, after LinePlace, limit int) []RequestView {
	return nil
}

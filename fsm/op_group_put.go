package fsm

// GroupPut gives a group of a semaphore a limit of its own, or ends that limit. A higher limit
// serves the group's waiting requests at once; requests that can't be granted any more end with
// Never. A lower limit takes no lease away.
//
// Codes: OK, Malformed (RuleGroup: a plain semaphore), UnknownSemaphore, EpochMismatch,
// LimitReached.
type GroupPut struct {
	Name  string
	Group string
	Limit int64  // 0 or more; NoLimit: the group has the limit of Settings.PerGroup again
	Epoch uint64 // of the semaphore, 0: any
}

// Op is OpGroupPut.
func (GroupPut) Op() Op            { return OpGroupPut }
func (c GroupPut) names() []string { return []string{c.Name} }
func (GroupPut) session() uint64   { return 0 }

func (c GroupPut) encode(e *encoder) {
	e.string(c.Name)
	e.string(c.Group)
	e.int(c.Limit)
	e.uint(c.Epoch)
}

func decodeGroupPut(d *decoder) Command {
	return GroupPut{Name: d.Text(), Group: d.Text(), Limit: d.Int(), Epoch: d.Uint()}
}

func (c GroupPut) apply(m *Machine) Result {
	var result Result
	_, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	return result
}

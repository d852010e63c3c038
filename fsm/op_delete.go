package fsm

// DeleteSemaphore removes a semaphore: its waiters end with Deleted, its leases
// are dropped. Sessions live on, but for one-shots that had nothing else.
//
// Codes: OK, UnknownSemaphore, EpochMismatch, VersionMismatch.
type DeleteSemaphore struct {
	Name    string
	Epoch   uint64         // the epoch meant, 0: any
	Version Change[uint64] // of the settings meant; from level 1 on
}

// Op is OpDeleteSemaphore.
func (DeleteSemaphore) Op() Op { return OpDeleteSemaphore }

func (c DeleteSemaphore) encode(e *encoder) {
	e.string(c.Name)
	e.uint(c.Epoch)
	e.settings(c.Version)
}

func (c DeleteSemaphore) needs() uint32 { return needsVersion(c.Version) }

func decodeDeleteSemaphore(d *decoder) Command {
	return DeleteSemaphore{Name: d.string(), Epoch: d.uint(), Version: d.settings()}
}

func (c DeleteSemaphore) apply(m *Machine) Result {
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok || !m.versionIs(r, c.Version, &result) {
		return result
	}
	var waiting []ref
	if line := m.semaphores.at(r).line; line != nil {
		waiting = line.Values()
	}
	for _, request := range waiting {
		m.loseMember(request, r, CauseDeleted, Deleted)
	}
	for l := m.semaphores.at(r).holders.first; l != 0; l = m.semaphores.at(r).holders.first {
		owner := m.leases.at(l).session
		m.dropLease(l, CauseDeleted, "")
		m.endIfSpent(owner, CauseDeleted)
	}
	for e := m.semaphores.at(r).entries.first; e != 0; e = m.semaphores.at(r).entries.first {
		m.orphanEntry(e)
	}
	for n := m.semaphores.at(r).notices.first; n != 0; n = m.semaphores.at(r).notices.first {
		m.orphanNotice(n)
	}
	gone := *m.semaphores.at(r)
	delete(m.byName, gone.name)
	m.names.Delete(gone.name)
	m.semaphores.remove(r)
	m.effect(Effect{Kind: EffectDeleted, Semaphore: gone.name, Epoch: gone.epoch})
	m.settle()
	return Result{Code: OK, Found: true, Epoch: gone.epoch}
}

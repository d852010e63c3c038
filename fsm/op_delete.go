package fsm

// DeleteSemaphore removes a semaphore. Its waiting requests end with Deleted, and its leases are dropped. Sessions live
// on, except one-shots that are left without a lease or request. The name is free at once; a large semaphore loses its
// leases and requests during the next entries.
//
// Codes: OK, UnknownSemaphore, EpochMismatch, VersionMismatch.
type DeleteSemaphore struct {
	Name    string
	Epoch   uint64         // of the semaphore, 0: any
	Version Change[uint64] // the expected version of the settings
}

// Op is OpDeleteSemaphore.
func (DeleteSemaphore) Op() Op            { return OpDeleteSemaphore }
func (c DeleteSemaphore) names() []string { return []string{c.Name} }
func (DeleteSemaphore) session() uint64   { return 0 }

func (c DeleteSemaphore) encode(e *encoder) {
	e.string(c.Name)
	e.uint(c.Epoch)
	encodeChange(e, c.Version, (*encoder).uint)
}

func decodeDeleteSemaphore(d *decoder) Command {
	return DeleteSemaphore{Name: d.Text(), Epoch: d.Uint(), Version: decodeChange(d, (*decoder).Uint)}
}

func (c DeleteSemaphore) apply(m *Machine) Result {
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok || !m.versionIs(r, c.Version, &result) {
		return result
	}
	m.semaphores.mut(r).deleted = true
	gone := *m.semaphores.at(r)
	delete(m.byName, gone.name)
	m.names.Delete(gone.name)
	m.count(gone.owner, owned{semaphores: -1})
	m.unswept.Set(gone.epoch, r)
	emptied := m.empty(r, m.budget.ended)
	for n := m.semaphores.at(r).notices.first; n != 0; n = m.semaphores.at(r).notices.first {
		m.orphanNotice(n)
	}
	if emptied {
		m.removeSemaphore(r)
	}
	m.emit(Effect{Kind: EffectDeleted, Semaphore: gone.name, Epoch: gone.epoch})
	m.finishCommand()
	return Result{Code: OK, Found: true, Epoch: gone.epoch}
}

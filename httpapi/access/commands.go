package access

import (
	"slices"

	"github.com/signalbox/signalbox/fsm"
)

// May returns nil if the identity may give a command, or a *Denied. The refusal depends on
// the command and the identity alone, not on the state.
//
// Each operation needs a scope, and the names of its semaphores and items need prefixes. An
// operation without a case is refused; so is an operation that only nodes propose.
//
// A session has no name that a prefix could cover. So an identity with prefixes acts only on
// sessions whose ids nodes drew, of which the state machine finds its own, and a restore, which
// chooses the id, names a lease. No client chooses an id that is derived from names: it could
// keep a machine from its slot without the right to name the slot.
func (id *Identity) May(command fsm.Command) error {
	if err := id.MayDerived(command); err != nil {
		return err
	}
	restore, restores := command.(fsm.RestoreSession)
	switch derived := SessionOf(command) >= fsm.DerivedSessions || renewsDerived(command); {
	case restores && derived:
		return &Denied{}
	case id.Prefixes != nil && (derived || restores && len(restore.Leases) == 0):
		return &Denied{Unnamed: true}
	}
	return nil
}

// MayDerived is May for a dialect that has derived the id of the command's session from the
// names in the command: their prefixes cover the session too.
func (id *Identity) MayDerived(command fsm.Command) error {
	scope, names := needs(command)
	if scope == 0 {
		return &Denied{}
	}
	if err := id.Needs(scope); err != nil {
		return err
	}
	for _, name := range names {
		if err := id.MayName(name); err != nil {
			return err
		}
	}
	return nil
}

// renewsDerived reports whether a command renews a session with a derived id.
func renewsDerived(command fsm.Command) bool {
	renew, ok := command.(fsm.Renew)
	return ok && slices.ContainsFunc(renew.Renewals, func(r fsm.Renewal) bool { return r.Session >= fsm.DerivedSessions })
}

// Owner returns the owner as whom a command acts: the identity. An admin who ends a session,
// revokes or releases a lease, or withdraws a request acts without an owner, and so finds
// the sessions of all.
func (id *Identity) Owner(command fsm.Command) string {
	switch command.(type) {
	case fsm.EndSession, fsm.RevokeLease, fsm.Release:
		if id.Scope == Admin {
			return ""
		}
	}
	return id.Name
}

// Names returns the semaphores or the item that a command names.
func Names(command fsm.Command) []string {
	_, names := needs(command)
	return names
}

// needs returns the scope that a command needs, 0 if no client may give it, and the
// semaphores that it names.
func needs(command fsm.Command) (scope Scope, names []string) {
	switch c := command.(type) {
	case fsm.RevokeLease:
		return Admin, []string{c.Name}
	case fsm.EndSession:
		if c.Operator {
			return Admin, nil
		}
		return Use, nil
	case fsm.OpenSession, fsm.OpenHolder, fsm.Renew, fsm.ListDeliver:
		return Use, nil
	case fsm.AcquireMany:
		return Use, namesOf(c.Wants)
	case fsm.RestoreSession:
		return Use, namesOf(c.Leases)
	}
	if name, one := nameOf(command); one {
		return Use, []string{name}
	}
	return 0, nil // fsm.StartTerm, fsm.NoticeDone, fsm.RaiseLevel: see Node.RaiseLevel for the last
}

// nameOf returns the semaphore or item of a command that names one and needs Use. The prefix of
// names that a command deletes counts as a name: the same prefixes cover all that begin with it.
func nameOf(command fsm.Command) (name string, one bool) {
	switch c := command.(type) {
	case fsm.ItemPut:
		return c.Name, true
	case fsm.ItemAcquire:
		return c.Name, true
	case fsm.ItemRelease:
		return c.Name, true
	case fsm.ItemDelete:
		return c.Name, true
	case fsm.ItemDeleteAll:
		return c.Prefix, true
	case fsm.PutSemaphore:
		return c.Name, true
	case fsm.CreateSemaphore:
		return c.Name, true
	case fsm.DeleteSemaphore:
		return c.Name, true
	case fsm.Up:
		return c.Name, true
	case fsm.Down:
		return c.Name, true
	case fsm.SetValue:
		return c.Name, true
	case fsm.Acquire:
		return c.Name, true
	case fsm.AcquireOnce:
		return c.Name, true
	case fsm.Release:
		return c.Name, true
	case fsm.ResizeLease:
		return c.Name, true
	case fsm.ListAdd:
		return c.Name, true
	case fsm.ListRemove:
		return c.Name, true
	}
	return "", false
}

func namesOf(wants []fsm.Want) []string {
	names := make([]string, len(wants))
	for i := range wants {
		names[i] = wants[i].Semaphore
	}
	return names
}

// SessionOf returns the session that a command names; 0 if it names none, or makes one.
func SessionOf(command fsm.Command) uint64 {
	switch c := command.(type) {
	case fsm.Acquire:
		return c.Session
	case fsm.AcquireMany:
		return c.Session
	case fsm.Release:
		return c.Session
	case fsm.ResizeLease:
		return c.Session
	case fsm.RevokeLease:
		return c.Session
	case fsm.EndSession:
		return c.Session
	case fsm.RestoreSession:
		return c.Session
	case fsm.ListAdd:
		return c.Session
	case fsm.ListRemove:
		return c.Session
	case fsm.ListDeliver:
		return c.Session
	case fsm.ItemAcquire:
		return c.Session
	case fsm.ItemRelease:
		return c.Session
	case fsm.Renew:
		if len(c.Renewals) == 1 {
			return c.Renewals[0].Session
		}
	}
	return 0
}

package access

import (
	"slices"

	"github.com/signalbox/signalbox/fsm"
)

// May returns nil if the identity may give a command, or a *Denied. The refusal depends on
// the command and the identity alone, not on the state.
//
// Each operation needs a scope, and the names of its semaphores and items need prefixes. An
// operation that only nodes propose is refused.
//
// A session has no name that a prefix could cover. So an identity with prefixes acts only on
// sessions whose ids nodes drew, and the state machine finds only the identity's sessions among
// them. A restore chooses the id, so it must name a lease. No client chooses an id that is derived
// from names: the client could keep a computer from its slot without the right to name the slot.
func (id *Identity) May(command fsm.Command) error {
	if err := id.MayDerived(command); err != nil {
		return err
	}
	restore, restores := command.(fsm.RestoreSession)
	switch derived := fsm.SessionOf(command) >= fsm.DerivedSessions || renewsDerived(command); {
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
	scope := needs(command)
	if scope == 0 {
		return &Denied{}
	}
	if err := id.Needs(scope); err != nil {
		return err
	}
	for _, name := range fsm.Names(command) {
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
	if id.Scope == Admin && command.Op().Reclaims() {
		return ""
	}
	return id.Name
}

// needs returns the scope that a client needs to give a command, or 0 if no client may give it. For example, clients
// raise the feature level with Node.RaiseLevel, not with a command.
func needs(command fsm.Command) Scope {
	switch fsm.RightOf(command) {
	case fsm.RightUse:
		return Use
	case fsm.RightAdmin:
		return Admin
	}
	return 0
}

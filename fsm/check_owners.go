package fsm

import (
	"errors"
	"maps"
)

// checkEnded: each ended session is in the list of its kind once, and in the list of its owner once.
func (m *Machine) checkEnded() error {
	filed := 0
	for _, kind := range m.endedByKind {
		owners := 0
		kind.sizes.Scan(func(share endedCount) bool {
			owned, size := kind.byOwner[share.owner], uint32(0)
			for r := owned.first; r != 0; r = m.ended.at(r).inOwner.next {
				if e := m.ended.at(r); e.owner == share.owner && m.endedIndexFor(e.cause) == kind {
					size++
				}
			}
			if size == share.size && size == owned.size {
				owners += int(size)
			}
			return true
		})
		if owners != kind.order.length() || owners > maxEnded || kind.sizes.Len() != len(kind.byOwner) {
			return errors.New("too many ended sessions, or ones out of their order")
		}
		filed += owners
	}
	if filed != m.ended.live {
		return errors.New("too many ended sessions, or ones out of their order")
	}
	return nil
}

// checkOwners: the counts of each owner agree with its keys, with its sessions and their leases
// and requests, and with its shares.
func (m *Machine) checkOwners() error {
	found := map[string]owned{}
	m.countShares(func(owner string, more owned) {
		if owner == "" {
			return
		}
		has := found[owner]
		has.semaphores, has.notices = has.semaphores+more.semaphores, has.notices+more.notices
		has.items, has.itemBytes = has.items+more.items, has.itemBytes+more.itemBytes
		has.ownLimits, has.returns = has.ownLimits+more.ownLimits, has.returns+more.returns
		found[owner] = has
	})
	for _, k := range m.keys.all() {
		if k.owner == "" {
			continue
		}
		has := found[k.owner]
		has.keys, has.keyBytes = has.keys+1, has.keyBytes+k.bytes()
		found[k.owner] = has
	}
	for _, s := range m.sessions.all() {
		if s.owner == "" {
			continue
		}
		has := found[s.owner]
		has.sessions++
		has.leases += int64(s.leases.length()) + int64(s.reserved)
		has.waiting += int64(s.members)
		found[s.owner] = has
	}
	if !maps.Equal(found, m.owned) {
		return errors.New("the records of an owner are counted wrongly")
	}
	return nil
}

// countShares yields the count of each record that counts in its owner's share: semaphores, notices, limits of groups,
// returns, items and abouts of sessions.
func (m *Machine) countShares(yield func(owner string, more owned)) {
	for _, r := range m.everySemaphore() {
		if s := m.semaphores.at(r); !s.deleted {
			yield(s.owner, owned{semaphores: 1})
		}
	}
	for _, n := range m.notices.all() {
		yield(n.owner, owned{notices: 1})
	}
	for _, l := range m.lanes.all() {
		if l.hasOwnLimit {
			yield(l.owner, owned{ownLimits: 1})
		}
	}
	for _, t := range m.returns.all() {
		yield(t.owner, owned{returns: 1})
	}
	for _, i := range m.items.all() {
		yield(i.owner, owned{items: 1, itemBytes: i.bytes()})
	}
	for _, s := range m.sessions.all() {
		if s.itemTerms != nil {
			yield(s.owner, owned{itemBytes: s.itemTerms.bytes()})
		}
	}
}

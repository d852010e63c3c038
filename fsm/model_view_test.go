package fsm

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
)

// differs compares everything that readers of the machine can see with the model, and
// returns the first difference, or nil.
func (m *model) differs(machine *Machine) error {
	if m.broken != nil {
		return m.broken
	}
	scalars := []struct {
		name      string
		got, want any
	}{
		{"index", machine.Index(), m.index},
		{"term", machine.Term(), m.term},
		{"leader", machine.Leader(), m.leader},
		{"cluster time", machine.NowMS(), m.nowMS},
		{"limits", machine.Limits(), m.limits},
		{"last token", machine.tokens, m.tokens},
		{"last place", machine.places, m.places},
		{"last epoch", machine.epochs, m.epochs},
	}
	for _, s := range scalars {
		if s.got != s.want {
			return fmt.Errorf("%s is %v, the model has %v", s.name, s.got, s.want)
		}
	}
	for _, part := range []func(*Machine) error{m.semaphoresDiffer, m.sessionsDiffer, m.listsDiffer, m.memoryDiffers, m.itemsDiffer} {
		if err := part(machine); err != nil {
			return err
		}
	}
	return nil
}

func same(what string, got, want any) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return fmt.Errorf("%s:\n got  %s\n want %s", what, show(got), show(want))
}

func (m *model) semaphoresDiffer(machine *Machine) error {
	byName := slices.Clone(m.semaphores)
	sort.Slice(byName, func(i, j int) bool { return byName[i].name < byName[j].name })
	var views []SemaphoreView
	for _, s := range byName {
		views = append(views, *m.view(s))
	}
	if err := same("semaphores", machine.Semaphores("", "", 10_000), views); err != nil {
		return err
	}
	for _, s := range m.semaphores {
		var holders []LeaseView
		for _, l := range m.holders(s) {
			holders = append(holders, leaseView(l))
		}
		if err := same("lost holds of "+s.name, machine.Lost(s.name, 0, 10_000), m.lostViews(s)); err != nil {
			return err
		}
		if err := same("holders of "+s.name, machine.Holders(s.name, 0, 10_000), holders); err != nil {
			return err
		}
		var waiters []RequestView
		for _, w := range m.waiters(s) {
			waiters = append(waiters, m.requestView(w.request, w.member))
		}
		if err := m.groupsDiffer(machine, s); err != nil {
			return err
		}
		if err := same("waiters of "+s.name, machine.Waiters(s.name, LinePlace{}, 10_000), waiters); err != nil {
			return err
		}
	}
	return nil
}

// groupsDiffer compares the groups of a semaphore.
func (m *model) groupsDiffer(machine *Machine, s *modelSemaphore) error {
	var groups []GroupView
	for _, g := range s.groups {
		view := GroupView{Group: g.name, Limit: g.limit, Own: g.own, Used: m.used(s, g.name), Held: m.heldIn(s, g.name),
			Ahead: m.ahead(modelMember{semaphore: s, group: g.name})}
		if line := m.line(s, g.name); s.grouped() && len(line) > 0 {
			view.Waiting, view.OldestMS = int64(len(line)), line[0].enqueuedMS
		}
		groups = append(groups, view)
	}
	got, _, _ := machine.Groups(s.name, "", false, 10_000)
	if err := same("groups of "+s.name, got, groups); err != nil {
		return err
	}
	return same("passed of "+s.name, int(machine.semaphores.at(machine.byName[s.name]).passed), s.passed)
}

func leaseView(l *modelLease) LeaseView {
	deadlineMS := l.session.deadlineMS
	if l.endsMS != 0 {
		deadlineMS = min(deadlineMS, l.endsMS)
	}
	return LeaseView{Grant: tell(l), Session: l.session.id, DeadlineMS: deadlineMS,
		Metadata: l.session.metadata, Revoked: l.revoked, Reason: l.reason}
}

// position counts the requests of a line up to one of them, whether they stand in it or not.
func (m *model) position(r *modelRequest, in modelMember) int64 {
	return int64(slices.Index(m.line(in.semaphore, in.group), r)) + 1
}

func (m *model) requestView(r *modelRequest, in modelMember) RequestView {
	view := RequestView{Place: r.place, Session: r.session.id, Mode: r.mode, Unowned: r.unowned, Partial: r.partial,
		Position: m.position(r, in), Group: in.group, Ahead: m.ahead(in), RankMS: r.rankMS, BlockedBy: m.block(r, in),
		EnqueuedMS: r.enqueuedMS, DeadlineMS: r.session.deadlineMS, Metadata: r.session.metadata}
	for _, want := range r.left() {
		view.Wants = append(view.Wants, Want{want.semaphore.name, want.count, want.group})
		if block := m.block(r, want); block != BlockOther {
			o := Obstacle{Semaphore: want.semaphore.name, Group: want.group, BlockedBy: block, Needs: want.count, Available: m.available(want.semaphore), Limit: NoLimit}
			if want.semaphore.grouped() {
				o.Limit, o.Used = want.semaphore.limit(want.group), m.used(want.semaphore, want.group)
			}
			view.Obstacles = append(view.Obstacles, o)
		}
	}
	return view
}

// ahead counts the groups of a pool whose heads come before the head of a group.
func (m *model) ahead(at modelMember) (n int64) {
	s := at.semaphore
	if !s.pool() {
		return 0
	}
	heads := m.heads(at, nil)
	i := slices.IndexFunc(heads, func(h modelHead) bool { return h.member.group == at.group })
	for _, h := range heads {
		if i >= 0 && h != heads[i] && choose(s, []modelHead{heads[i], h}) == h {
			n++
		}
	}
	return n
}

// singlesDiffer asks for each lease and request alone.
func (m *model) singlesDiffer(machine *Machine, s *modelSession) error {
	for _, semaphore := range m.semaphores {
		for _, group := range drawnGroups {
			var lease LeaseView
			if l := m.leaseOf(s, semaphore, group); l != nil {
				lease = leaseView(l)
			}
			if got, ok := machine.Lease(s.id, semaphore.name, group); ok != (lease.Token != 0) || same("lease", got, lease) != nil {
				return same("lease alone", got, lease)
			}
			var request RequestView
			if r, _ := m.requestFor(s, semaphore, group); r != nil {
				request = m.requestView(r, r.left()[0])
			}
			if got, ok := machine.Request(s.id, semaphore.name, group); ok != (request.Place != 0) || same("request", got, request) != nil {
				return same("request alone", got, request)
			}
		}
	}
	return nil
}

func (m *model) sessionsDiffer(machine *Machine) error {
	byID := slices.Clone(m.sessions)
	sort.Slice(byID, func(i, j int) bool { return byID[i].id < byID[j].id })
	var views []SessionView
	for _, s := range byID {
		view := SessionView{ID: s.id, TTLMS: s.ttlMS, DeadlineMS: s.deadlineMS, OneShot: s.oneShot, Keep: s.keep, Owner: s.owner, Metadata: s.metadata}
		for _, l := range m.leasesOf(s) {
			if !l.semaphore.deleted {
				view.Leases = append(view.Leases, leaseView(l))
			}
		}
		for _, r := range m.requestsOf(s) {
			if len(r.left()) == 0 {
				continue
			}
			view.Waiting = append(view.Waiting, m.requestView(r, r.left()[0]))
		}
		views = append(views, view)
		if err := m.singlesDiffer(machine, s); err != nil {
			return err
		}
	}
	if err := same("sessions", machine.Sessions(0, 10_000), views); err != nil {
		return err
	}
	next, ok := machine.NextDeadline()
	earliest, has := m.nextDeadline()
	if ok != has || next != earliest {
		return fmt.Errorf("next deadline is %d, the model has %d", next, earliest)
	}
	return nil
}

// memoryDiffers compares the memory of ended sessions and keys.
func (m *model) memoryDiffers(machine *Machine) error {
	if len(m.ended) != machine.ended.live || len(m.keys) != machine.keys.live {
		return fmt.Errorf("%d ended sessions and %d keys, the model has %d and %d",
			machine.ended.live, machine.keys.live, len(m.ended), len(m.keys))
	}
	var marks []mark
	machine.marks.each(func(v *mark) { marks = append(marks, *v) })
	if len(marks) != len(m.marks) {
		return fmt.Errorf("%d marks, the model has %d", len(marks), len(m.marks))
	}
	for i, want := range m.marks {
		if marks[i] != (mark{keyName{want.owner, want.name}.hash(), want.atMS}) {
			return fmt.Errorf("mark %d is %v, the model has %q at %d", i, marks[i], want.name, want.atMS)
		}
	}
	if len(m.revoked) != machine.revoked.live {
		return fmt.Errorf("%d revoked leases are remembered, the model has %d", machine.revoked.live, len(m.revoked))
	}
	for _, v := range m.revoked {
		if r, ok := machine.byRevoked[revokedKey{v.session, v.epoch, v.group}]; !ok || machine.revoked.at(r).reason != v.reason || machine.revoked.at(r).atMS != v.atMS {
			return fmt.Errorf("the revoked lease of session %d is forgotten or differs, the model has %v", v.session, v)
		}
	}
	for _, e := range m.ended {
		cause, reason, ok := machine.Ended(e.id)
		if !ok || cause != e.cause || reason != e.reason {
			return fmt.Errorf("session %d ended %v %q, the model has %v %q", e.id, cause, reason, e.cause, e.reason)
		}
	}
	for _, k := range m.keys {
		if _, ok := machine.byKey[keyName{k.owner, k.name}]; !ok {
			return fmt.Errorf("key %q is forgotten, the model has it", k.name)
		}
	}
	return nil
}

// saidDiffers compares the results, conclusions and effects of an entry with the
// model's, in their order.
func (m *model) saidDiffers(applied *Applied, results []Result) error {
	if applied.Index != m.index || applied.NowMS != m.nowMS || len(applied.Commands) != len(results) {
		return fmt.Errorf("entry %d at %d with %d results, the model has %d at %d with %d",
			applied.Index, applied.NowMS, len(applied.Commands), m.index, m.nowMS, len(results))
	}
	for i, result := range results {
		result.Refusal = result.Why().ifSet()
		if err := same(fmt.Sprintf("result of command %d", i), applied.Commands[i].Result, result); err != nil {
			return err
		}
	}
	if err := same("how many grants passed the head of lowest rank", applied.Passing, m.passing); err != nil {
		return err
	}
	for i := range m.conclusions {
		result := &m.conclusions[i].Result
		result.Refusal = result.Why().ifSet()
	}
	if err := same("conclusions", applied.Conclusions, m.conclusions); err != nil {
		return err
	}
	if err := same("effects", inOrder(applied.Effects), inOrder(m.effects)); err != nil {
		return err
	}
	if more := m.moreDue(); applied.MoreDue != more {
		return fmt.Errorf("more due: %v, the model says %v", applied.MoreDue, more)
	}
	return nil
}

// show prints a value with the values behind its pointers.
func show(v any) string {
	return showValue(reflect.ValueOf(v))
}

func showValue(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		return "&" + showValue(v.Elem())
	case reflect.Slice:
		text := "["
		for i := range v.Len() {
			text += "\n    " + showValue(v.Index(i))
		}
		return text + "]"
	case reflect.Struct:
		text := v.Type().Name() + "{"
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				text += v.Type().Field(i).Name + ":" + showValue(f) + " "
			}
		}
		return text + "}"
	}
	return fmt.Sprint(v)
}

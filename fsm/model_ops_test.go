package fsm

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"
)

// The model's operations, in the order of their table.

func (m *model) do(c Command) Result {
	switch c := c.(type) {
	case StartTerm:
		return m.startTerm(c)
	case PutSemaphore:
		return m.put(c)
	case CreateSemaphore:
		return m.createOrOpen(c)
	case DeleteSemaphore:
		return m.delete(c)
	case Up:
		return m.up(c)
	case Down:
		return m.down(c)
	case SetValue:
		return m.set(c)
	case OpenSession:
		return m.openSession(c)
	case Renew:
		return m.renew(c)
	case EndSession:
		return m.end(c)
	case Acquire:
		return m.acquire(c)
	case AcquireOnce:
		return m.acquireOnce(c)
	case AcquireMany:
		return m.acquireMany(c)
	case Release:
		return m.release(c)
	case ResizeLease:
		return m.resize(c)
	case RevokeLease:
		return m.revoke(c)
	case RestoreSession:
		return m.restore(c)
	case ListAdd:
		return m.listAdd(c)
	case ListRemove:
		return m.listRemove(c)
	case ListDeliver:
		return m.listDeliver(c)
	case RaiseLevel:
		return Result{Code: OK, Found: true} // there is one level
	case RaiseTokens:
		if c.Above > MaxRaise {
			return Result{Code: Malformed}
		}
		if c.Above > m.tokens {
			m.tokens = c.Above
		}
		return Result{Code: OK, Value: int64(m.tokens)}
	case NoticeDone:
		return m.noticeDone(c)
	case OpenHolder:
		return m.openHolder(c)
	case ItemPut:
		return m.itemPut(c)
	case ItemAcquire:
		return m.itemAcquire(c)
	case ItemRelease:
		return m.itemRelease(c)
	case ItemDelete:
		return m.itemDelete(c)
	case ItemDeleteAll:
		return m.itemDeleteAll(c)
	case GroupPut:
		return m.groupPut(c)
	case FreeLost:
		return m.freeLost(c)
	}
	panic(fmt.Sprintf("the model does not know %T", c))
}

func badTime(ms int64) bool { return ms < 0 || ms > MaxTTLMS }

func (m *model) startTerm(c StartTerm) Result {
	m.term, m.leader, m.limits = c.Term, c.Leader, c.Limits
	if c.Jump {
		by := uint64(1 << 40)
		m.tokens += by
		m.places += by
		m.epochs += by
		m.skipChanges(by)
	}
	return Result{Code: OK}
}

// meant returns the semaphore with a name and epoch, or the refusal.
func (m *model) meant(name string, epoch uint64) (*modelSemaphore, *Result) {
	s := m.semaphore(name)
	switch {
	case s == nil:
		return nil, &Result{Code: UnknownSemaphore, Subject: name}
	case epoch != 0 && epoch != s.epoch:
		return nil, &Result{Code: EpochMismatch, Subject: name, Epoch: s.epoch}
	}
	return s, nil
}

func (m *model) otherVersion(s *modelSemaphore) Result {
	return Result{Code: VersionMismatch, Subject: s.name, Epoch: s.epoch, Version: s.version}
}

// noSession is the refusal for a session that does not exist.
func (m *model) noSession(id uint64) Result {
	for _, e := range m.ended {
		if !m.mayFind(e.owner) {
			continue
		}
		if e.id == id && e.cause == CauseExpired {
			return Result{Code: ExpiredSession, Session: id}
		}
		if e.id == id && revoking(e.cause) {
			return Result{Code: Revoked, Session: id, Refusal: Refusal{Reason: e.reason}.ifSet()}
		}
	}
	return Result{Code: UnknownSession, Session: id}
}

func (m *model) noSessionFor(id uint64, s *modelSemaphore) Result {
	result := m.noSession(id)
	result.Epoch = s.epoch
	return result
}

func (m *model) put(c PutSemaphore) Result {
	if !ValidName(c.Name) || !ValidMetadata(c.Metadata.Value) || c.Permits.Value < 0 || badSettings(c.Settings) {
		return Result{Code: Malformed}
	}
	s := m.semaphore(c.Name)
	if s == nil {
		switch {
		case c.Epoch != 0 || c.Version.Given || c.OnlyExisting:
			return Result{Code: UnknownSemaphore, Subject: c.Name}
		case !c.Permits.Given:
			return Result{Code: PermitsRequired, Subject: c.Name}
		}
		return m.create(c.Name, c.Permits.Value, c.Level.Value, c.Metadata.Value, c.Settings.applied(Settings{}, true))
	}
	if c.OnlyNew {
		return Result{Code: AlreadyExists, Subject: c.Name, Epoch: s.epoch}
	}
	if c.Epoch != 0 && c.Epoch != s.epoch {
		return Result{Code: EpochMismatch, Subject: c.Name, Epoch: s.epoch}
	}
	if c.Version.Given && c.Version.Value != s.version {
		return m.otherVersion(s)
	}
	after := c.Settings.applied(s.settings, c.Permits.Given)
	if rule := excluded(after); rule != RuleNone {
		return Result{Code: Malformed, Rule: rule, Subject: s.name, Epoch: s.epoch}
	}
	if (after.Groups != s.settings.Groups || after.Family != s.settings.Family) && len(m.waiters(s)) > 0 {
		return m.refusal(RequestsWaiting, modelMember{semaphore: s, whole: true})
	}
	permits := s.permits
	if c.Permits.Given {
		permits = c.Permits.Value
	}
	if c.Permits.Given && !legal(permits, big.NewInt(s.offset), big.NewInt(m.taken(s))) || !after.fitsIn(permits, s.offset) ||
		after.Family && m.taken(s) > 1<<62 {
		return m.refusal(Overflow, modelMember{semaphore: s, whole: true})
	}
	m.change(s, c, after)
	m.serveAndEnd()
	view := m.view(s)
	return Result{Code: OK, Found: true, Epoch: s.epoch, Version: s.version, Semaphore: view}
}

func (m *model) change(s *modelSemaphore, c PutSemaphore, settings Settings) {
	before := *s
	s.settings = settings
	if c.Permits.Given {
		s.permits = c.Permits.Value
	}
	if c.Level.Given {
		s.level = c.Level.Value
	}
	if c.Metadata.Given {
		s.metadata = c.Metadata.Value
	}
	if !reflect.DeepEqual(before, *s) {
		s.version++
		m.changed(s)
	}
	if s.permits != before.permits {
		s.modified = m.index
	}
	if s.permits != before.permits || total(s) != total(&before) {
		m.endImpossible(s, m.budget.ended)
	}
	if s.settings.PerGroup != before.settings.PerGroup && len(s.groups) > 0 {
		s.sweeping, s.sweepAt = true, ""
		m.sweepGroups(s, m.budget.ended)
	}
}

func (m *model) createOrOpen(c CreateSemaphore) Result {
	if !ValidName(c.Name) || !ValidMetadata(c.Metadata) || c.Permits < 0 || badSettings(c.Settings) {
		return Result{Code: Malformed}
	}
	if s := m.semaphore(c.Name); s != nil {
		return Result{Code: OK, Found: true, Epoch: s.epoch, Version: s.version, Semaphore: m.view(s)}
	}
	return m.create(c.Name, c.Permits, c.Level, c.Metadata, c.Settings.applied(Settings{}, true))
}

func countFunc[T any](list []T, like func(T) bool) (n int64) {
	for _, v := range list {
		if like(v) {
			n++
		}
	}
	return n
}

func (m *model) create(name string, permits int64, level *int32, metadata []Pair, settings Settings) Result {
	if rule := excluded(settings); rule != RuleNone {
		return Result{Code: Malformed, Rule: rule, Subject: name}
	}
	if !settings.fitsIn(permits, 0) {
		return Result{Code: Overflow, Subject: name}
	}
	if int64(len(m.semaphores)) >= m.limits.Semaphores {
		return Result{Code: LimitReached, Rule: RuleSemaphores, Subject: name}
	}
	owner := m.caller.owner
	if share := m.limits.Semaphores - m.limits.Semaphores/2; owner != "" && countFunc(m.semaphores, func(s *modelSemaphore) bool { return s.owner == owner }) >= share {
		return Result{Code: LimitReached, Rule: RuleOwnerSemaphores, Subject: name, Refusal: &Refusal{Limit: share}}
	}
	m.epochs++
	s := &modelSemaphore{name: name, epoch: m.epochs, permits: permits, level: level, metadata: metadata, modified: m.index, version: 1, owner: owner, settings: settings}
	m.semaphores = append(m.semaphores, s)
	m.effect(Effect{Kind: EffectCreated, Semaphore: name, Epoch: s.epoch,
		Details: &EffectDetails{Permits: permits, Level: level, Metadata: metadata, Settings: told(settings)}})
	return Result{Code: OK, Created: true, Epoch: s.epoch, Version: 1, Semaphore: m.view(s)}
}

func (m *model) delete(c DeleteSemaphore) Result {
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return *refusal
	}
	if c.Version.Given && c.Version.Value != s.version {
		return m.otherVersion(s)
	}
	s.deleted = true
	m.semaphores = slices.DeleteFunc(m.semaphores, func(other *modelSemaphore) bool { return other == s })
	if !m.empty(s, m.budget.ended) {
		m.buried = append(m.buried, s)
	}
	m.deleteNotices(s)
	m.effect(Effect{Kind: EffectDeleted, Semaphore: s.name, Epoch: s.epoch})
	m.serveAndEnd()
	return Result{Code: OK, Found: true, Epoch: s.epoch}
}

func (m *model) up(c Up) Result {
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return *refusal
	}
	if refusal := m.noTotal(s, c.Count, 1, s.settings.Family); refusal != nil {
		return *refusal
	}
	return m.moveOffset(s, new(big.Int).Add(big.NewInt(s.offset), big.NewInt(c.Count)), c.Count)
}

func (m *model) set(c SetValue) Result {
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return *refusal
	}
	if refusal := m.noTotal(s, c.Value, 0, s.settings.Family || s.pool() && s.settings.WindowMS != 0); refusal != nil {
		return *refusal
	}
	stays := m.held(s)
	for _, t := range m.returnsOf(s) {
		if !t.spent || s.grouped() {
			stays += t.count
		}
	}
	offset := new(big.Int).Add(big.NewInt(c.Value), big.NewInt(stays))
	offset.Sub(offset, big.NewInt(s.permits))
	if !legal(s.permits, offset, big.NewInt(stays)) || !s.settings.fitsIn(s.permits, offset.Int64()) {
		return m.refusal(Overflow, modelMember{semaphore: s, count: c.Value, whole: true})
	}
	if !s.grouped() {
		forgotten := m.forgetSpends(s)
		if forgotten && s.offset == offset.Int64() {
			s.modified = m.index
			m.changed(s)
		}
	}
	return m.moveOffset(s, offset, c.Value)
}

// noTotal refuses a count below the least, and one of a semaphore without a total.
func (m *model) noTotal(s *modelSemaphore, count, least int64, without bool) *Result {
	result := m.refusal(NoTotal, modelMember{semaphore: s, count: count, whole: true})
	if count < least {
		result.Code = InvalidCount
	} else if !without {
		return nil
	}
	return &result
}

func (m *model) moveOffset(s *modelSemaphore, offset *big.Int, count int64) Result {
	if !legal(s.permits, offset, big.NewInt(m.taken(s))) || !s.settings.fitsIn(s.permits, offset.Int64()) {
		return m.refusal(Overflow, modelMember{semaphore: s, count: count, whole: true})
	}
	if s.offset != offset.Int64() {
		s.offset = offset.Int64()
		s.modified = m.index
		m.changed(s)
	}
	m.serveAndEnd()
	return Result{Code: OK, Epoch: s.epoch, Value: m.available(s)}
}

func (m *model) down(c Down) Result {
	if badTime(c.WaitMS) || (c.WaitMS == 0) != (c.Session == 0) || len(c.Notice) > 2048 || c.WaitMS > 0 && c.Notice != "" ||
		!ValidGroup(c.Group) || badHeadStart(c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	want, refusal := m.asked(Want{c.Name, c.Count, c.Group}, c.Epoch, nil)
	if refusal != nil {
		return *refusal
	}
	switch {
	case c.Count < 1:
		return m.refusal(InvalidCount, want)
	case want.semaphore.settings.Family && want.semaphore.settings.WindowMS == 0:
		return m.refusal(NoTotal, want)
	}
	r := &modelRequest{members: []modelMember{want}, unowned: true, partial: c.Partial}
	m.rank(r, c.HeadStartMS)
	if members, ok := m.servable(r); ok {
		if refusal := m.roomToHold(nil, r); refusal != nil {
			return *refusal
		}
		result := m.grant(r, members)
		m.serveAndEnd()
		return result
	}
	if c.WaitMS == 0 {
		result := m.unavailable(r)
		result.Value = m.available(want.semaphore)
		if c.Notice != "" {
			result = m.leaveNotice(want, c, result)
		}
		return result
	}
	return m.waitOnce(r, modelSession{id: c.Session, ttlMS: c.WaitMS, deadlineMS: m.nowMS + c.WaitMS, oneShot: true})
}

// waitOnce waits by a session made for this one request.
func (m *model) waitOnce(r *modelRequest, s modelSession) Result {
	if refusal := m.fullLines(r); refusal != nil {
		return *refusal
	}
	if refusal := m.roomToOpen(s.id); refusal != nil {
		return *refusal
	}
	if refusal := m.roomToWait(nil, r); refusal != nil {
		return *refusal
	}
	r.session = m.open(s)
	r.session.first = r
	result := m.enqueue(r)
	m.serveAndEnd()
	return result
}

func (m *model) openSession(c OpenSession) Result {
	if c.Session == 0 || badTime(c.TTLMS) || !ValidMetadata(c.Metadata) {
		return Result{Code: Malformed}
	}
	if refusal := m.roomToOpen(c.Session); refusal != nil {
		return *refusal
	}
	s := m.open(modelSession{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.TTLMS, metadata: c.Metadata, keep: c.Keep})
	m.endIfDue(s)
	result := m.of(s, Result{Code: OK, Created: true})
	m.serveAndEnd()
	return result
}

func (m *model) renew(c Renew) Result {
	if len(c.Renewals) == 0 || len(c.Renewals) > 4096 {
		return Result{Code: Malformed}
	}
	var result Result
	for _, r := range c.Renewals {
		result.Each = append(result.Each, m.renewOne(r))
	}
	m.serveAndEnd()
	return result
}

func (m *model) renewOne(c Renewal) Result {
	if c.TTLMS != KeepTTL && badTime(c.TTLMS) {
		return Result{Code: Malformed}
	}
	s := m.found(c.Session)
	if s == nil {
		return m.noSession(c.Session)
	}
	ttl := s.ttlMS
	if c.TTLMS != KeepTTL {
		ttl = c.TTLMS
	}
	m.giveTTL(s, ttl)
	return m.goOn(s, m.of(s, Result{Code: OK}))
}

// giveTTL: while a one-shot's own request waits, the deadline is the end of that.
func (m *model) giveTTL(s *modelSession, ttlMS int64) {
	if s.awaitsFirst() {
		m.live(s, ttlMS, s.deadlineMS)
	} else {
		m.liveFor(s, ttlMS)
	}
}

func (m *model) end(c EndSession) Result {
	if !ValidReason(c.Reason) {
		return Result{Code: Malformed}
	}
	s := m.found(c.Session)
	if s == nil {
		return Result{Code: OK, Session: c.Session}
	}
	cause := CauseEnded
	if c.Operator {
		cause = CauseRevoked
	}
	m.endSession(s, cause, c.Reason)
	m.serveAndEnd()
	return Result{Code: OK, Session: c.Session, Found: true}
}

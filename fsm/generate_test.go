package fsm

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// Random entries for the property tests: few names and few sessions, so that commands meet;
// counts close to the available permits; ttls and jumps of time close to each other; and
// sometimes commands that no client should send.

// sentEntry is one entry, as bytes and as the model reads it.
type sentEntry struct {
	index    uint64
	stampMS  int64
	commands []modelCommand
	bytes    []byte
}

// generator draws entries; the model's state steers it to counts and epochs
// that matter.
type generator struct {
	t      *rapid.T
	m      *model
	index  uint64
	seq    uint64
	keyed  []modelCommand // sent with a key so far
	ops    []Op           // the operations that this sequence draws from
	owners []string       // the owners that this sequence draws from
	bounds []OwnerLimits  // the limits that their commands bring
	groups []string       // the groups that this sequence draws from, if any
	busy   bool           // see chooseGroups

	returns int  // see chooseReturns
	slots   bool // leases name slots
}

var (
	drawnNames  = []string{"a", "b", "c", "d/&"}
	badNames    = []string{"", "never made", "\xff", "line\nfeed"}
	drawnTTLs   = []int64{KeepTTL, 30_000, KeepTTL, 100_000, KeepTTL, KeepTTL, 30_000, KeepTTL, 1000, KeepTTL, 30_000, 0, 100, 600_000, 10, MaxTTLMS}
	drawnWaits  = []int64{0, 30_000, 30_000, 1000, 100, 10, 700_000, 1, MaxTTLMS, 30_000, 10_000}
	wildTimes   = []int64{MaxTTLMS + 1, -2, math.MinInt64, math.MaxInt64}
	drawnSteps  = []int64{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 10, 10, 10, 10, 10, 10, 100, 100, 100, 100, 1000, 1000, 0, 0, 1, -5, -1, 10}
	drawnJumps  = []int64{7 * 24 * 3600 * 1000, 600_000, 15_000, 30_000, 400_000, 29_000, -1_000_000, 30_000, 10_000}
	wildCounts  = []int64{0, -1, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MaxInt64 / 2}
	drawnLevels = []*int32{nil, nil, nil, levelOf(0), levelOf(1), levelOf(2), levelOf(-3)}
	drawnPairs  = [][]Pair{nil, nil, nil, nil, nil, {{"job", "7"}}, {{"a", "1"}, {"b", "\x00"}}, {{"b", ""}, {"a", ""}}}
	drawnModes  = []Mode{All, Any, All, Any, Any, All, Any, All, Any, All, Any, Any, All, Any, All, Any, Any, All, Any, 3}
	drawnTraces = []string{"", "", "", "trace-1", "trace-2"}
	reasons     = []string{"", "maintenance", "", "bad\nreason"}
	drawnOps    = []Op{
		OpAcquire, OpAcquire, OpAcquire, OpAcquire, OpAcquire, OpAcquireOnce, OpAcquireOnce, OpAcquireOnce, OpAcquireMany,
		OpAcquireMany, OpAcquireMany, OpAcquireMany, OpRelease, OpRelease, OpRelease, OpRelease, OpDown, OpDown, OpUp, OpSetValue,
		OpOpenSession, OpOpenSession, OpPutSemaphore, OpPutSemaphore, OpResizeLease, OpCreateSemaphore, OpRelease,
		OpRenew, OpEndSession, OpResizeLease, OpRevokeLease, OpRestoreSession, OpListAdd, OpListAdd, OpListAdd, OpListDeliver,
		OpListRemove, OpUp, OpDown, OpNoticeDone, OpAcquireMany, OpAcquireMany, OpAcquireMany,
	}
)

func levelOf(v int32) *int32 { return &v }

// below draws 0 … n-1, each about as often: bit by bit, since the library
// prefers small numbers, and sequences would mostly consist of the first choices.
func (g *generator) below(n int) int {
	v := 0
	for range bits.Len(uint(n)) + 1 {
		v <<= 1
		if anyBit.Draw(g.t, "bit") {
			v |= 1
		}
	}
	return v % n
}

var anyBit = rapid.Bool()

func oneOf[T any](g *generator, from []T) T { return from[g.below(len(from))] }

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.below(n) == n-1 }

// entry draws the next entry, and leaves applying it to the caller.
func (g *generator) entry() sentEntry {
	g.index++
	e := sentEntry{index: g.index, stampMS: g.m.nowMS + oneOf(g, drawnSteps)}
	if g.returns != 0 {
		e.stampMS = g.m.nowMS + oneOf(g, returnSteps)
	}
	if g.chance(32) && (!g.busy || g.chance(8)) {
		e.stampMS = g.m.nowMS + oneOf(g, drawnJumps)
	}
	var encoded [][]byte
	for range oneOf(g, []int{1, 2, 1, 3, 1, 2, 1, 0}) {
		g.seq++
		c := g.keyedCommand()
		buf := Envelope{Request: RequestID{Origin: 1, Sequence: g.seq}, Key: c.key, Owner: c.owner, Limits: c.limits, Trace: c.trace}.Encode(c.command)
		if g.chance(100) {
			buf, c = g.spoil(buf), modelCommand{}
		}
		encoded = append(encoded, buf)
		e.commands = append(e.commands, c)
	}
	e.bytes = EncodeEntry(e.stampMS, encoded)
	return e
}

// keyedCommand draws a command, sometimes with an idempotency key, and sometimes a repeat
// of one with its key, for which a node draws new ids.
func (g *generator) keyedCommand() modelCommand {
	if len(g.keyed) > 0 && g.chance(10) {
		c := oneOf(g, g.keyed)
		switch again := c.command.(type) {
		case AcquireOnce:
			again.Session, again.WaitMS = g.fresh(), oneOf(g, drawnWaits)
			c.command = again
		case OpenSession:
			again.Session = g.fresh()
			c.command = again
		case OpenHolder:
			again.Session = g.fresh()
			c.command = again
		case Down:
			if again.WaitMS > 0 {
				again.Session, again.WaitMS = g.fresh(), again.WaitMS+1
			}
			c.command = again
		}
		if c.owner == "" { // the client may have an identity now
			c.owner = oneOf(g, g.owners)
		}
		return c
	}
	c := modelCommand{command: g.command(), owner: oneOf(g, g.owners), trace: oneOf(g, drawnTraces)}
	if c.owner != "" {
		c.limits = oneOf(g, g.bounds)
	}
	if g.chance(5) && (!g.busy || g.chance(5)) {
		c.key = fmt.Sprintf("key %d", g.seq)
		if g.chance(8) && len(g.keyed) > 0 {
			c.key = oneOf(g, g.keyed).key // with another request
		}
		g.keyed = append(g.keyed, c)
	}
	return c
}

// spoil makes bytes that are no command any more: cut short, or too long.
func (g *generator) spoil(buf []byte) []byte {
	cut := buf[:g.below(len(buf))]
	left, _ := decodeCommand(newDecoder(cut)) // without its group and settings it may be a command
	if g.chance(2) || left.command != nil {
		return append(buf, 0)
	}
	return cut
}

// choose leaves some operations out of the sequence: with fewer kinds, rare
// ones meet more often than in a mixture of everything.
func (g *generator) choose() {
	g.owners = oneOf(g, [][]string{{""}, {"ci"}, {"", "", "ci"}, {"ci", "ci", "ops", ""}})
	g.bounds = []OwnerLimits{{}}
	for range oneOf(g, []int{0, 1, 1, 2}) {
		g.bounds = append(g.bounds, OwnerLimits{Sessions: int64(g.below(4)), Leases: int64(g.below(4)), Waiting: int64(g.below(3))})
	}
	if len(g.bounds) > 1 && g.chance(2) {
		g.bounds = g.bounds[1:]
	}
	items := oneOf(g, [][]Op{nil, nil, itemOps, itemOps[:1+g.below(len(itemOps))]})
	if g.chance(3) {
		g.ops = slices.Concat(drawnOps, items)
		return
	}
	g.ops = append([]Op{OpAcquire, OpOpenSession}, items...)
	var left [opCount]int // 0: not drawn yet, 1: left out, 2: in
	for _, op := range drawnOps {
		if left[op] == 0 {
			left[op] = 1 + g.below(2)
		}
		if left[op] == 2 {
			g.ops = append(g.ops, op)
		}
	}
}

// setup is the first entry: semaphores, sessions and, half of the time,
// limits that are soon met.
func (g *generator) setup() sentEntry {
	g.choose()
	g.chooseGroups()
	g.chooseReturns()
	g.chooseSlots()
	if g.busy {
		return g.plain(g.busySetup())
	}
	var commands []Command
	if g.chance(4) {
		commands = append(commands, StartTerm{Term: 1, Leader: "n1", Limits: g.limits()})
	}
	for _, name := range drawnNames[:1+g.below(4)] {
		settings := g.slotted(g.returning(g.kind()))
		permits := g.permits(oneOf(g, []int64{1, 2, 1, 3, 0, 1, 4, 2}), settings)
		commands = append(commands, CreateSemaphore{Name: name, Permits: permits, Level: oneOf(g, drawnLevels), Settings: settings})
	}
	for id := range 1 + uint64(g.below(4)) {
		commands = append(commands, OpenSession{Session: id + 1, TTLMS: 30_000, Keep: g.chance(4)})
	}
	return g.plain(commands)
}

// plain is the entry of commands without an owner.
func (g *generator) plain(commands []Command) sentEntry {
	g.index++
	e := sentEntry{index: g.index, stampMS: 1000}
	var encoded [][]byte
	for _, c := range commands {
		g.seq++
		encoded = append(encoded, Envelope{Request: RequestID{Origin: 1, Sequence: g.seq}, Key: ""}.Encode(c))
		e.commands = append(e.commands, modelCommand{command: c})
	}
	e.bytes = EncodeEntry(e.stampMS, encoded)
	return e
}

func (g *generator) limits() Limits {
	small := func(bound int) int64 { return 1 + int64(g.below(bound)) }
	return Limits{Semaphores: 1 + small(4), Sessions: 3 + small(6), SessionLeases: small(4), SessionWaiting: small(3),
		Leases: small(10), Waiting: small(8), Queue: small(5), WaitList: small(3), Keys: 2 + small(16), KeyBytes: 500 * small(10)}
}

func (g *generator) name() string {
	if g.chance(60) {
		return oneOf(g, badNames)
	}
	if len(g.m.semaphores) > 0 && !g.chance(6) {
		return oneOf(g, g.m.semaphores).name
	}
	return oneOf(g, drawnNames)
}

// session draws an id among few, preferring one that lives.
func (g *generator) session() uint64 {
	if len(g.m.sessions) > 0 && !g.chance(8) {
		return oneOf(g, g.m.sessions).id
	}
	return 1 + uint64(g.below(6))
}

// fresh draws an id that is usually not in use.
func (g *generator) fresh() uint64 {
	if g.chance(30) {
		return oneOf(g, []uint64{0, 1, 2, math.MaxUint64})
	}
	return 1000 + g.seq
}

func (g *generator) ttl() int64 {
	if g.busy && g.returns < 2 && !g.chance(20) {
		return KeepTTL
	}
	if g.chance(60) {
		return oneOf(g, wildTimes)
	}
	return oneOf(g, drawnTTLs)
}

// life draws a ttl for commands that must have one.
func (g *generator) life() int64 {
	if ttl := g.ttl(); ttl != KeepTTL || g.chance(20) {
		return ttl
	}
	return 30_000
}

func (g *generator) wait() int64 {
	if g.chance(60) {
		return oneOf(g, wildTimes)
	}
	return oneOf(g, drawnWaits)
}

func (g *generator) epoch() uint64 {
	if g.chance(25) {
		return 1 + uint64(g.below(5))
	}
	return 0
}

// version draws an expected version of a semaphore's settings.
func (g *generator) version() (expected Change[uint64]) {
	if g.chance(8) {
		expected = Change[uint64]{true, uint64(g.below(4))}
	}
	return expected
}

// token draws the token that a release or resize names: usually 0, else the lease's,
// or another one.
func (g *generator) token(name string, sessionID uint64) uint64 {
	if !g.chance(3) {
		return 0
	}
	for _, l := range g.m.leases {
		if l.semaphore.name == name && l.session.id == sessionID && !g.chance(3) {
			return l.token
		}
	}
	return oneOf(g, []uint64{g.m.tokens, 1 + uint64(g.below(8)), NoToken, math.MaxUint64})
}

// count draws a count for a semaphore: small, or close to one of its counters.
func (g *generator) count(name string) int64 {
	s := g.m.semaphore(name)
	if g.busy && !g.chance(10) {
		return oneOf(g, []int64{1, 1, 1, 2, 2, 3})
	}
	switch {
	case g.slots && g.chance(4):
		return oneOf(g, slotCounts)
	case g.chance(40):
		return oneOf(g, wildCounts)
	case s != nil && g.chance(4):
		return oneOf(g, []int64{g.m.available(s), g.m.available(s) + 1, total(s), total(s) + 1, s.permits})
	}
	return oneOf(g, []int64{1, 1, 2, 3})
}

// wants draws a list of up to three members, seldom one of them twice.
func (g *generator) wants() []Want {
	var wants []Want
	for range oneOf(g, []int{2, 3, 3, 2, 1}) {
		name := g.name()
		group := g.group(name)
		for tries := 0; tries < 5 && slices.ContainsFunc(wants, func(w Want) bool { return w.Semaphore == name && w.Group == group }); tries++ {
			name = g.name()
			group = g.group(name)
		}
		wants = append(wants, Want{name, oneOf(g, []int64{1, 1, 1, 2, g.count(name)}), group})
	}
	if g.chance(20) {
		wants = append(wants, wants[0])
	}
	return wants
}

func (g *generator) command() Command {
	if g.chance(60) {
		return g.startTerm()
	}
	if g.chance(100) {
		return RaiseLevel{Level: FeatureLevel - uint32(g.below(2))}
	}
	if g.chance(100) {
		return RaiseTokens{Above: oneOf(g, []uint64{0, g.m.tokens - 1, g.m.tokens + 10, MaxRaise + 1})}
	}
	if g.chance(80) {
		return DeleteSemaphore{Name: g.name(), Epoch: g.epoch(), Version: g.version()}
	}
	op := oneOf(g, g.ops)
	if aboutItems(op) {
		return g.ofItem(op)
	}
	switch op {
	case OpPutSemaphore:
		return g.put()
	case OpDown:
		return g.down()
	case OpRenew:
		return g.renew()
	case OpRestoreSession:
		return g.restore()
	case OpOpenSession:
		return OpenSession{Session: g.fresh() % 7, TTLMS: g.life(),
			Metadata: oneOf(g, drawnPairs), Keep: g.chance(3)}
	case OpEndSession:
		return EndSession{Session: g.session(), Operator: g.chance(2), Reason: oneOf(g, reasons)}
	case OpAcquireMany:
		return g.many()
	case OpListDeliver:
		return ListDeliver{Session: g.lister()}
	case OpNoticeDone:
		return g.noticeDone()
	case OpGroupPut:
		return g.groupPut()
	case OpFreeLost:
		return g.freeLost()
	}
	return g.ofSemaphore(op)
}

// ofSemaphore draws a command about one semaphore.
func (g *generator) ofSemaphore(op Op) Command {
	name, sessionID := g.name(), g.session()
	group := g.group(name)
	if len(g.m.leases) > 0 && g.chance(2) { // of an existing lease
		l := oneOf(g, g.m.leases)
		name, sessionID = l.semaphore.name, l.session.id
		if !g.chance(4) {
			group = l.in.group
		}
		if op == OpResizeLease {
			return ResizeLease{Session: sessionID, Name: name, Count: g.settled(l, g.count(name)), Epoch: g.epoch(), Token: g.token(name, sessionID), Group: group}
		}
	}
	count, epoch := g.count(name), g.epoch()
	switch op {
	case OpAcquire:
		return Acquire{Session: sessionID, Name: name, Count: count, TTLMS: g.ttl(), Try: g.chance(5) || g.busy && g.chance(4), Epoch: epoch,
			Group: group, HeadStartMS: g.headStart()}
	case OpAcquireOnce:
		return AcquireOnce{Name: name, Count: count, TTLMS: g.life(), Metadata: oneOf(g, drawnPairs),
			Epoch: epoch, WaitMS: g.wait(), Session: g.fresh(), Group: group, HeadStartMS: g.headStart()}
	case OpCreateSemaphore:
		settings := g.slotted(g.returning(g.kind()))
		return CreateSemaphore{Name: name, Permits: g.permits(count, settings), Level: oneOf(g, drawnLevels), Metadata: oneOf(g, drawnPairs), Settings: settings}
	case OpListAdd:
		return ListAdd{Session: g.session(), Name: name, Count: count, Epoch: epoch, Group: group}
	case OpListRemove:
		return ListRemove{Session: g.lister(), Name: name, Epoch: epoch, Group: group}
	case OpUp:
		return Up{Name: name, Count: count, Epoch: epoch}
	case OpSetValue:
		return SetValue{Name: name, Value: oneOf(g, []int64{1, 0, 2, count}), Epoch: epoch}
	case OpResizeLease:
		return ResizeLease{Session: sessionID, Name: name, Count: count, Epoch: epoch, Token: g.token(name, sessionID), Group: group}
	case OpRevokeLease:
		return RevokeLease{Session: sessionID, Name: name, Reason: oneOf(g, reasons), Epoch: epoch, Group: group}
	}
	return Release{Session: sessionID, Name: name, Epoch: epoch, Token: g.token(name, sessionID), Group: group}
}

func (g *generator) startTerm() Command {
	limits := g.m.limits
	if g.chance(3) {
		limits = DefaultLimits()
	} else if g.chance(2) {
		limits = g.limits()
	}
	return StartTerm{Term: g.m.term + 1, Leader: oneOf(g, []string{"n1", "n2"}), Limits: limits, Jump: g.chance(4)}
}

func (g *generator) put() Command {
	c := PutSemaphore{Name: g.name(), OnlyNew: g.chance(6), OnlyExisting: g.chance(6), Epoch: g.epoch(), Version: g.version()}
	if s := g.m.semaphore(c.Name); !g.chance(4) && (s == nil || !s.settings.Family || g.chance(4)) {
		c.Permits = Change[int64]{true, max(g.count(c.Name), -1)}
	}
	c.Settings = g.otherSlots(g.otherReturns(g.settings()))
	if g.chance(3) {
		c.Level = Change[*int32]{true, oneOf(g, drawnLevels)}
	}
	if g.chance(4) {
		c.Metadata = Change[[]Pair]{true, oneOf(g, drawnPairs)}
	}
	return c
}

func (g *generator) down() Command {
	name := g.name()
	c := Down{Name: name, Count: g.count(name), Partial: g.chance(3), Epoch: g.epoch(), WaitMS: g.wait(), Group: g.group(name), HeadStartMS: g.headStart()}
	if c.WaitMS != 0 || g.chance(20) {
		c.Session = g.fresh()
	}
	if g.chance(4) {
		c.Notice = oneOf(g, []string{"http://example.com/free", "http://example.com/free", "http://example.com/free", strings.Repeat("x", 2049)})
		if !g.chance(10) {
			c.Session, c.WaitMS = 0, 0
		}
	}
	return c
}

// lister draws a session, preferring one with a wait list.
func (g *generator) lister() uint64 {
	if len(g.m.entries) > 0 && !g.chance(4) {
		return oneOf(g, g.m.entries).session.id
	}
	return g.session()
}

func (g *generator) noticeDone() Command {
	c := NoticeDone{IDs: []uint64{}}
	for range oneOf(g, []int{1, 2, 1, 0}) {
		if len(g.m.notices) > 0 && !g.chance(4) {
			c.IDs = append(c.IDs, oneOf(g, g.m.notices).id)
		} else {
			c.IDs = append(c.IDs, uint64(g.below(9)))
		}
	}
	return c
}

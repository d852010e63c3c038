package fsm

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/signalbox/signalbox/internal/wire"
)

// encoder appends the binary format of the package: unsigned and zigzag varints, strings as
// length and bytes, lists as length and members.
type encoder struct {
	buf []byte
	// clientOnly leaves out the session ids that a node drew and the wait of this call. Fingerprint encodes this way.
	clientOnly bool
	// feature is the feature level to encode at: members of later levels are left out.
	feature uint32
}

func (e *encoder) uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }

func (e *encoder) int(v int64) { e.buf = binary.AppendVarint(e.buf, v) }

func (e *encoder) byte(v byte) { e.buf = append(e.buf, v) }

func (e *encoder) bool(v bool) { e.buf = append(e.buf, bit(v)) }

func bit(v bool) (b byte) {
	if v {
		b = 1
	}
	return b
}

func (e *encoder) string(v string) {
	e.uint(uint64(len(v)))
	e.buf = append(e.buf, v...)
}

func (e *encoder) pairs(v []Pair) {
	e.uint(uint64(len(v)))
	for _, p := range v {
		e.string(p.Key)
		e.string(p.Value)
	}
}

func (e *encoder) wants(v []Want) {
	e.uint(uint64(len(v)))
	for _, w := range v {
		e.string(w.Semaphore)
		e.int(w.Count)
	}
}

// group appends the group and the head start of a request, or no byte if it has neither.
func (e *encoder) group(group string, headStartMS int64) {
	if group != "" || headStartMS != 0 {
		e.string(group)
		e.int(headStartMS)
	}
}

func (d *decoder) group() (group string, headStartMS int64) {
	if len(d.Rest) == 0 {
		return "", 0
	}
	group, headStartMS = d.Text(), d.Int()
	if group == "" && headStartMS == 0 {
		d.Fail() // an absent group and head start are encoded as no bytes
	}
	return group, headStartMS
}

// groupName appends a group, or no byte for the empty group.
func (e *encoder) groupName(group string) {
	if group != "" {
		e.string(group)
	}
}

func (d *decoder) groupName() (group string) {
	if len(d.Rest) == 0 {
		return ""
	}
	if group = d.Text(); group == "" {
		d.Fail() // an empty group is encoded as no bytes
	}
	return group
}

// groups appends the groups of a list and its head start, or no byte if the list has neither.
func (e *encoder) groups(list []Want, headStartMS int64) {
	if headStartMS == 0 && !slices.ContainsFunc(list, func(w Want) bool { return w.Group != "" }) {
		return
	}
	e.groupList(list, headStartMS)
}

func (e *encoder) groupList(list []Want, headStartMS int64) {
	e.int(headStartMS)
	for i := range list {
		e.string(list[i].Group)
	}
}

// groups reads groups and a head start into a list of the same length.
func (d *decoder) groups(list []Want) (headStartMS int64) {
	if len(d.Rest) == 0 {
		return 0
	}
	headStartMS, needed := d.groupList(list)
	if !needed {
		d.Fail() // absent groups and head start are encoded as no bytes
	}
	return headStartMS
}

// groupList reads groups and a head start. needed is false if all of them are empty.
func (d *decoder) groupList(list []Want) (headStartMS int64, needed bool) {
	headStartMS = d.Int()
	needed = headStartMS != 0
	for i := range list {
		list[i].Group = d.Text()
		needed = needed || list[i].Group != ""
	}
	return headStartMS, needed
}

func (e *encoder) level(v *int32) {
	e.bool(v != nil)
	if v != nil {
		e.int(int64(*v))
	}
}

// drawn appends a session id that the proposing node drew.
func (e *encoder) drawn(sessionID uint64) {
	if !e.clientOnly {
		e.uint(sessionID)
	}
}

// wait appends the time that this call waits.
func (e *encoder) wait(ms int64) {
	if !e.clientOnly {
		e.int(ms)
	}
}

// decoder reads the output of encoder.
type decoder struct {
	wire.Decoder
	feature uint32
}

// newDecoder returns a decoder of buf at the first feature level.
func newDecoder(buf []byte) *decoder {
	return &decoder{Decoder: wire.Decoder{Rest: buf}, feature: firstLevel}
}

func (d *decoder) pairs() []Pair {
	n := d.Count(2)
	if n == 0 {
		return nil
	}
	v := make([]Pair, n)
	for i := range v {
		v[i] = Pair{Key: d.Text(), Value: d.Text()}
	}
	return v
}

func (d *decoder) wants() []Want {
	n := d.Count(2)
	if n == 0 {
		return nil
	}
	v := make([]Want, n)
	for i := range v {
		v[i] = Want{Semaphore: d.Text(), Count: d.Int()}
	}
	return v
}

func (d *decoder) level() *int32 {
	if !d.Bool() {
		return nil
	}
	v := d.Int()
	if v != int64(int32(v)) {
		d.Fail()
	}
	level := int32(v)
	return &level
}

// featureLevel reads a feature level, and fails if this program does not know the level.
func (d *decoder) featureLevel() uint32 {
	level := d.Uint()
	if d.Err == nil {
		d.Err = CheckLevel(level)
	}
	return uint32(level)
}

// encodeChange appends whether a member changes, and if so its new value.
func encodeChange[T any](e *encoder, c Change[T], value func(*encoder, T)) {
	e.bool(c.Given)
	if c.Given {
		value(e, c.Value)
	}
}

func decodeChange[T any](d *decoder, value func(*decoder) T) (c Change[T]) {
	if c.Given = d.Bool(); c.Given {
		c.Value = value(d)
	}
	return c
}

// only appends a byte with two bits: the put may only create (isNew), or only change (existing) a semaphore.
func (e *encoder) only(isNew, existing bool) {
	var bits byte
	if isNew {
		bits |= 1
	}
	if existing {
		bits |= 2
	}
	e.byte(bits)
}

func (d *decoder) only() (isNew, existing bool) {
	bits := d.Byte()
	if bits > 3 {
		d.Fail()
	}
	return bits&1 != 0, bits&2 != 0
}

// A result is encoded as its code, a mask with a bit for each member that is not zero, and these members in the order
// of their bits. A bit is never reused for another member, so that old results stay readable.

// resultMembers has the members of a result and of its refusal, except lists, in the order of the bits.
type resultMembers struct {
	flags   [8]*bool
	ids     [5]*uint64
	numbers [14]*int64
	texts   [4]*string
	levels  [2]**int32
}

func (r *Result) members(why *Refusal) resultMembers {
	return resultMembers{
		flags: [...]*bool{&r.Replayed, &r.Joined, &r.Waiting, &r.Created, &r.Found, &r.OneShot, &r.TookOver, &r.More},
		ids:   [...]*uint64{&r.Session, &r.Place, &r.Epoch, &r.Version, &r.Locks},
		numbers: [...]*int64{&r.TTLMS, &r.DeadlineMS, &r.Position, &r.Granted, &r.Value, &r.Asked, &why.Holding,
			&why.Permits, &why.Full, &why.Available, &r.QueueLength, &why.Limit, &why.DelayMS, &why.Used},
		texts:  [...]*string{&r.Subject, &why.Reason, &r.Trace, &why.Group},
		levels: [...]**int32{&why.Level, &why.LowestLevel},
	}
}

// The first bit of each kind of member. Unused bits follow each kind.
const (
	bitFlags     = 0  // booleans, which have only their bits in the mask
	bitIDs       = 8  //
	bitNumbers   = 16 //
	bitTexts     = 32 //
	bitLevels    = 36 //
	bitRule      = 40 //
	bitGrants    = 41 //
	bitSemaphore = 42 //
	bitEach      = 43 //
	bitCompleted = 44 //
	bitGroups    = 45 // of the grants, and of the completed entries
	bitSettings  = 46 // of the semaphore
	bitTimes     = 47 // of the grants
	bitSlots     = 48 // of the grants
	bitsKnown    = 1<<8 - 1 | (1<<5-1)<<bitIDs | (1<<14-1)<<bitNumbers | (1<<4-1)<<bitTexts |
		(1<<2-1)<<bitLevels | 511<<bitRule
)

func (r *Result) mask(members *resultMembers) (mask uint64) {
	set := func(bit int, present bool) {
		if present {
			mask |= 1 << bit
		}
	}
	mask = maskOf(bitFlags, members.flags[:]) | maskOf(bitIDs, members.ids[:]) | maskOf(bitNumbers, members.numbers[:]) |
		maskOf(bitTexts, members.texts[:]) | maskOf(bitLevels, members.levels[:])
	set(bitRule, r.Rule != RuleNone)
	set(bitGrants, len(r.Grants) > 0)
	set(bitSemaphore, r.Semaphore != nil)
	set(bitEach, len(r.Each) > 0)
	set(bitCompleted, len(r.Completed) > 0)
	set(bitSettings, r.Semaphore != nil && r.Semaphore.hasSettings())
	return mask | r.listMask()
}

// maskOf returns a mask with a bit for each member that is not zero. first is the number of the first member's bit.
func maskOf[T comparable](first int, members []*T) (mask uint64) {
	var zero T
	for i, v := range members {
		if *v != zero {
			mask |= 1 << (first + i)
		}
	}
	return mask
}

// listMask returns the bits of the members that most grants and completed entries don't have.
func (r *Result) listMask() (mask uint64) {
	for i := range r.Grants {
		g := r.Grants[i].DetailsOrZero()
		if g.Group != "" {
			mask |= 1 << bitGroups
		}
		if g.DueMS != 0 || g.EndsMS != 0 {
			mask |= 1 << bitTimes
		}
		if len(g.Slots) > 0 {
			mask |= 1 << bitSlots
		}
	}
	for i := range r.Completed {
		if r.Completed[i].Group != "" {
			mask |= 1 << bitGroups
		}
	}
	return mask
}

// AppendResult appends a result to buf, in the format of snapshots, the state hash and the peer port.
func AppendResult(buf []byte, r *Result) []byte {
	e := encoder{buf: buf}
	e.result(r)
	return e.buf
}

// DecodeResult reads the output of AppendResult.
func DecodeResult(buf []byte) (Result, error) {
	d := decoder{Decoder: wire.Decoder{Rest: buf}}
	r := d.result(true)
	return r, d.Done()
}

func encodeResult(r Result) string { return string(AppendResult(nil, &r)) }

// decodeResult decodes an outcome that the machine itself stored.
func decodeResult(text string) Result {
	r, err := DecodeResult([]byte(text))
	if err != nil {
		panic("a stored outcome is malformed")
	}
	return r
}

func (e *encoder) result(r *Result) {
	why := r.Why()
	members := r.members(&why)
	mask := r.mask(&members)
	e.byte(byte(r.Code))
	e.uint(mask)
	for set := mask >> bitIDs & (1<<len(members.ids) - 1); set != 0; set &= set - 1 {
		e.uint(*members.ids[bits.TrailingZeros64(set)])
	}
	for set := mask >> bitNumbers & (1<<len(members.numbers) - 1); set != 0; set &= set - 1 {
		e.int(*members.numbers[bits.TrailingZeros64(set)])
	}
	for set := mask >> bitTexts & (1<<len(members.texts) - 1); set != 0; set &= set - 1 {
		e.string(*members.texts[bits.TrailingZeros64(set)])
	}
	for _, v := range members.levels {
		if *v != nil {
			e.int(int64(**v))
		}
	}
	if r.Rule != RuleNone {
		e.byte(byte(r.Rule))
	}
	e.resultLists(r, mask)
}

func (e *encoder) resultLists(r *Result, mask uint64) {
	has := func(bit int) bool { return mask&(1<<bit) != 0 }
	if len(r.Grants) > 0 {
		e.uint(uint64(len(r.Grants)))
		for _, g := range r.Grants {
			e.string(g.Semaphore)
			e.uint(g.Epoch)
			e.int(g.Count)
			e.uint(g.Token)
			e.int(g.GrantedMS)
		}
	}
	if r.Semaphore != nil {
		e.semaphoreView(r.Semaphore)
	}
	if len(r.Each) > 0 {
		e.uint(uint64(len(r.Each)))
		for i := range r.Each {
			e.result(&r.Each[i])
		}
	}
	if len(r.Completed) > 0 {
		e.uint(uint64(len(r.Completed)))
		for _, c := range r.Completed {
			e.string(c.Semaphore)
			e.uint(c.Epoch)
			e.int(c.Granted)
			e.uint(c.Token)
			e.bool(c.Deleted)
		}
	}
	if has(bitGroups) {
		for i := range r.Grants {
			e.string(r.Grants[i].DetailsOrZero().Group)
		}
		for i := range r.Completed {
			e.string(r.Completed[i].Group)
		}
	}
	if has(bitSettings) {
		e.semaphoreSettings(r.Semaphore)
	}
	if has(bitTimes) {
		for i := range r.Grants {
			e.int(r.Grants[i].DetailsOrZero().DueMS)
			e.int(r.Grants[i].DetailsOrZero().EndsMS)
		}
	}
	if has(bitSlots) {
		for i := range r.Grants {
			e.slotRuns(r.Grants[i].DetailsOrZero().Slots)
		}
	}
}

// result reads a result. nested allows it to contain other results.
func (d *decoder) result(nested bool) Result {
	var r Result
	var why Refusal
	r.Code = Code(d.Byte())
	mask := d.Uint()
	if mask&^uint64(bitsKnown) != 0 || r.Code >= codeCount {
		d.Fail()
		return Result{}
	}
	has := func(bit int) bool { return mask&(1<<bit) != 0 && d.Err == nil }
	members := r.members(&why)
	for i, v := range members.flags {
		*v = has(bitFlags + i)
	}
	for i, v := range members.ids {
		if has(bitIDs + i) {
			*v = d.Uint()
		}
	}
	for i, v := range members.numbers {
		if has(bitNumbers + i) {
			*v = d.Int()
		}
	}
	for i, v := range members.texts {
		if has(bitTexts + i) {
			*v = d.Text()
		}
	}
	for i, v := range members.levels {
		if has(bitLevels + i) {
			level := int32(d.Int())
			*v = &level
		}
	}
	if has(bitRule) {
		r.Rule = Rule(d.Byte())
	}
	r.Refusal = why.ifSet()
	d.resultLists(&r, mask, nested)
	return r
}

func (d *decoder) resultLists(r *Result, mask uint64, nested bool) {
	has := func(bit int) bool { return mask&(1<<bit) != 0 && d.Err == nil }
	if has(bitGrants) {
		r.Grants = make([]Grant, d.Count(5))
		for i := range r.Grants {
			r.Grants[i] = Grant{Semaphore: d.Text(), Epoch: d.Uint(), Count: d.Int(), Token: d.Uint(), GrantedMS: d.Int()}
		}
	}
	if has(bitSemaphore) {
		view := d.semaphoreView()
		view.Version = r.Version
		r.Semaphore = &view
	}
	if has(bitEach) {
		if !nested {
			d.Fail()
			return
		}
		r.Each = make([]Result, d.Count(2))
		for i := range r.Each {
			r.Each[i] = d.result(false)
		}
	}
	if has(bitCompleted) {
		r.Completed = make([]Completion, d.Count(5))
		for i := range r.Completed {
			r.Completed[i] = Completion{Semaphore: d.Text(), Epoch: d.Uint(), Granted: d.Int(), Token: d.Uint(), Deleted: d.Bool()}
		}
	}
	if has(bitGroups) {
		for i := range r.Grants {
			if group := d.Text(); group != "" {
				r.Grants[i].details().Group = group
			}
		}
		for i := range r.Completed {
			r.Completed[i].Group = d.Text()
		}
	}
	if has(bitSettings) {
		if r.Semaphore == nil {
			d.Fail()
			return
		}
		if d.semaphoreSettings(r.Semaphore); !r.Semaphore.hasSettings() {
			d.Fail() // absent members are encoded as no bytes
		}
	}
	if has(bitTimes) {
		for i := range r.Grants {
			if due, ends := d.Int(), d.Int(); due != 0 || ends != 0 {
				r.Grants[i].details().DueMS, r.Grants[i].details().EndsMS = due, ends
			}
		}
	}
	if has(bitSlots) {
		for i := range r.Grants {
			if slots := d.slotRuns(); len(slots) > 0 {
				r.Grants[i].details().Slots = slots
			}
		}
	}
	const lists = 1<<bitGroups | 1<<bitTimes | 1<<bitSlots
	if mask&lists != r.listMask() {
		d.Fail() // members that are zero in all elements are encoded as no bytes
	}
}

func (e *encoder) semaphoreView(s *SemaphoreView) {
	e.string(s.Name)
	e.uint(s.Epoch)
	e.int(s.Permits)
	e.int(s.Offset)
	e.int(s.Held)
	e.level(s.Level)
	e.pairs(s.Metadata)
	e.uint(s.ModifiedIndex)
	e.int(s.Holders)
	e.int(s.Waiters)
}

func (d *decoder) semaphoreView() SemaphoreView {
	s := SemaphoreView{Name: d.Text(), Epoch: d.Uint(), Permits: d.Int(), Offset: d.Int(), Held: d.Int(),
		Level: d.level(), Metadata: d.pairs(), ModifiedIndex: d.Uint(), Holders: d.Int(), Waiters: d.Int()}
	s.Available = s.Permits + s.Offset - s.Held
	return s
}

// hasSettings reports whether a view needs the optional members at the end of its encoding.
func (s *SemaphoreView) hasSettings() bool {
	return s.Settings != (Settings{}) || s.Groups != 0 || s.Returns != 0
}

func (e *encoder) semaphoreSettings(s *SemaphoreView) {
	e.settings(&s.Settings)
	e.int(s.Groups)
	e.bool(s.Sweeping)
	e.int(s.Returns)
	e.int(s.Returning)
	e.int(s.NextReturnMS)
	e.int(s.Lost)
}

func (d *decoder) semaphoreSettings(s *SemaphoreView) {
	s.Settings = *d.settings()
	s.Groups, s.Sweeping = d.Int(), d.Bool()
	s.Returns, s.Returning, s.NextReturnMS, s.Lost = d.Int(), d.Int(), d.Int(), d.Int()
	if s.Available -= s.Returning; s.Settings.Family {
		s.Available = 0
	}
}

func (e *encoder) effect(f *Effect) {
	details := f.DetailsOrZero()
	e.buf = append(e.buf, byte(f.Kind), byte(f.Cause), byte(f.Mode), bit(f.Unowned), bit(f.Partial), bit(f.Listed), bit(f.OneShot))
	e.string(f.Semaphore)
	e.uint(f.Epoch)
	e.uint(f.Session)
	e.uint(f.Place)
	e.uint(f.Token)
	e.int(f.Count)
	e.int(details.Permits)
	e.int(details.Offset)
	e.int(f.TTLMS)
	e.int(f.DeadlineMS)
	e.level(details.Level)
	e.pairs(details.Metadata)
	e.string(details.Reason)
	e.string(f.Trace)
	e.string(f.Item)
	e.uint(f.Version)
	if details.Group != "" || details.Limit != 0 || details.Settings != nil || details.DueMS != 0 || len(details.Slots) > 0 {
		e.string(details.Group)
		e.int(details.Limit)
	}
	if details.Settings != nil {
		e.settings(details.Settings)
	}
	if details.DueMS != 0 {
		e.int(details.DueMS)
	}
	if len(details.Slots) > 0 {
		e.slotRuns(details.Slots)
	}
}

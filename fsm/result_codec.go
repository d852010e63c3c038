package fsm

// A result is encoded as its code, a mask with a bit for each member that is
// not zero, and those members in the order of their bits. A bit is never used
// for anything else; a new member takes a new bit, so that old results stay
// readable. The order of the arrays below is that of the bits.

func (r *Result) flags() [6]*bool {
	return [...]*bool{&r.Replayed, &r.Joined, &r.Waiting, &r.Created, &r.Found, &r.OneShot}
}

func (r *Result) ids() [4]*uint64 {
	return [...]*uint64{&r.Session, &r.Place, &r.Epoch, &r.Version}
}

func (r *Result) numbers() [11]*int64 {
	return [...]*int64{&r.TTLMS, &r.DeadlineMS, &r.Position, &r.Granted, &r.Value, &r.Asked, &r.Holding,
		&r.Permits, &r.Full, &r.Available, &r.QueueLength}
}

func (r *Result) texts() [3]*string { return [...]*string{&r.Subject, &r.Reason, &r.Trace} }
func (r *Result) levels() [2]**int32 {
	return [...]**int32{&r.Level, &r.LowestLevel}
}

// The first bit of each kind of member; room is left behind each.
const (
	bitFlags     = 0  // the flags have no bytes of their own
	bitIDs       = 8  //
	bitNumbers   = 16 //
	bitTexts     = 32 //
	bitLevels    = 36 //
	bitRule      = 40 //
	bitGrants    = 41 //
	bitSemaphore = 42 //
	bitEach      = 43 //
	bitCompleted = 44 //
	bitsKnown    = 1<<6 - 1 | (1<<4-1)<<bitIDs | (1<<11-1)<<bitNumbers | (1<<3-1)<<bitTexts |
		(1<<2-1)<<bitLevels | 31<<bitRule
)

func (r *Result) mask() (mask uint64) {
	set := func(bit int, is bool) {
		if is {
			mask |= 1 << bit
		}
	}
	for i, v := range r.flags() {
		set(bitFlags+i, *v)
	}
	for i, v := range r.ids() {
		set(bitIDs+i, *v != 0)
	}
	for i, v := range r.numbers() {
		set(bitNumbers+i, *v != 0)
	}
	for i, v := range r.texts() {
		set(bitTexts+i, *v != "")
	}
	for i, v := range r.levels() {
		set(bitLevels+i, *v != nil)
	}
	set(bitRule, r.Rule != RuleNone)
	set(bitGrants, len(r.Grants) > 0)
	set(bitSemaphore, r.Semaphore != nil)
	set(bitEach, len(r.Each) > 0)
	set(bitCompleted, len(r.Completed) > 0)
	return mask
}

// AppendResult appends a result to buf in the form that snapshots, the state
// hash and the peer port share.
func AppendResult(buf []byte, r *Result) []byte {
	e := encoder{buf: buf}
	e.result(r)
	return e.buf
}

// DecodeResult reads what AppendResult wrote.
func DecodeResult(buf []byte) (Result, error) {
	d := decoder{buf: buf}
	r := d.result(true)
	return r, d.done()
}

func encodeResult(r Result) string { return string(AppendResult(nil, &r)) }

// decodeResult reads a stored outcome, which the machine itself wrote.
func decodeResult(text string) Result {
	r, err := DecodeResult([]byte(text))
	if err != nil {
		panic("a stored outcome is malformed")
	}
	return r
}

func (e *encoder) result(r *Result) {
	e.byte(byte(r.Code))
	e.uint(r.mask())
	for _, v := range r.ids() {
		if *v != 0 {
			e.uint(*v)
		}
	}
	for _, v := range r.numbers() {
		if *v != 0 {
			e.int(*v)
		}
	}
	for _, v := range r.texts() {
		if *v != "" {
			e.string(*v)
		}
	}
	for _, v := range r.levels() {
		if *v != nil {
			e.int(int64(**v))
		}
	}
	if r.Rule != RuleNone {
		e.byte(byte(r.Rule))
	}
	e.resultLists(r)
}

func (e *encoder) resultLists(r *Result) {
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
}

// result reads a result; nested says whether it may hold others.
func (d *decoder) result(nested bool) Result {
	var r Result
	r.Code = Code(d.byte())
	mask := d.uint()
	if mask&^uint64(bitsKnown) != 0 || r.Code >= codeCount {
		d.fail()
		return Result{}
	}
	has := func(bit int) bool { return mask&(1<<bit) != 0 && d.err == nil }
	for i, v := range r.flags() {
		*v = has(bitFlags + i)
	}
	for i, v := range r.ids() {
		if has(bitIDs + i) {
			*v = d.uint()
		}
	}
	for i, v := range r.numbers() {
		if has(bitNumbers + i) {
			*v = d.int()
		}
	}
	for i, v := range r.texts() {
		if has(bitTexts + i) {
			*v = d.string()
		}
	}
	for i, v := range r.levels() {
		if has(bitLevels + i) {
			level := int32(d.int())
			*v = &level
		}
	}
	if has(bitRule) {
		r.Rule = Rule(d.byte())
	}
	d.resultLists(&r, has, nested)
	return r
}

func (d *decoder) resultLists(r *Result, has func(int) bool, nested bool) {
	if has(bitGrants) {
		r.Grants = make([]Grant, d.count(5))
		for i := range r.Grants {
			r.Grants[i] = Grant{Semaphore: d.string(), Epoch: d.uint(), Count: d.int(), Token: d.uint(), GrantedMS: d.int()}
		}
	}
	if has(bitSemaphore) {
		view := d.semaphoreView()
		view.Version = r.Version
		r.Semaphore = &view
	}
	if has(bitEach) {
		if !nested {
			d.fail()
			return
		}
		r.Each = make([]Result, d.count(2))
		for i := range r.Each {
			r.Each[i] = d.result(false)
		}
	}
	if has(bitCompleted) {
		r.Completed = make([]Completion, d.count(5))
		for i := range r.Completed {
			r.Completed[i] = Completion{Semaphore: d.string(), Epoch: d.uint(), Granted: d.int(), Token: d.uint(), Deleted: d.bool()}
		}
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
	s := SemaphoreView{Name: d.string(), Epoch: d.uint(), Permits: d.int(), Offset: d.int(), Held: d.int(),
		Level: d.level(), Metadata: d.pairs(), ModifiedIndex: d.uint(), Holders: d.int(), Waiters: d.int()}
	s.Available = s.Permits + s.Offset - s.Held
	return s
}

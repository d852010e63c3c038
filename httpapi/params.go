package httpapi

import (
	"sort"

	"github.com/signalbox/signalbox/fsm"
)

// fields is a set of members and parameters of requests.
type fields uint32

const (
	fieldOp fields = 1 << iota
	fieldSemaphore
	fieldName // the semaphore's, in the body of POST /v1/semaphores
	fieldSession
	fieldPermits
	fieldLevel
	fieldMetadata
	fieldCount
	fieldTTL
	fieldWait
	fieldPartial
	fieldValue
	fieldReason
	fieldMode
	fieldSemaphores
	fieldLeases
	fieldOnEnd
	fieldEpoch
	fieldTry
	fieldOnlyNew
	fieldKey
	fieldToken
	fieldShowLeases // in the query of a renewal
)

func (f fields) has(all fields) bool { return f&all == all }

// params are the parameters of one operation, from a path, a query and a body,
// or from one member of a batch. What given lacks has its default.
type params struct {
	given fields
	op    string // in a batch

	semaphore string
	session   uint64
	permits   int64
	level     *int32 // nil: given as null
	metadata  []fsm.Pair
	count     int64
	ttlMS     int64
	waitMS    int64
	partial   bool
	value     int64
	reason    string
	mode      fsm.Mode
	wants     []fsm.Want // semaphores or leases
	keep      bool
	epoch     uint64
	token     uint64
	try       bool
	leases    bool // are to be shown
	onlyNew   bool
	key       string // Idempotency-Key

	maxWaitMS int64
}

// member is how one member of a body is read.
type member struct {
	field fields
	read  func(p *params, name string, v value) error
}

// members are all that any operation knows; which of them it takes is its row's
// matter.
var members = map[string]member{
	"op":         {fieldOp, readText(func(p *params, text string) { p.op = text })},
	"semaphore":  {fieldSemaphore, readSemaphore},
	"name":       {fieldName, readSemaphore},
	"session":    {fieldSession, readSession},
	"permits":    {fieldPermits, readNatural(func(p *params) *int64 { return &p.permits })},
	"value":      {fieldValue, readNatural(func(p *params) *int64 { return &p.value })},
	"level":      {fieldLevel, readLevel},
	"metadata":   {fieldMetadata, readMetadata},
	"count":      {fieldCount, readCount},
	"ttl":        {fieldTTL, readTTL},
	"wait":       {fieldWait, readWait},
	"partial":    {fieldPartial, readFlag(func(p *params) *bool { return &p.partial })},
	"try":        {fieldTry, readFlag(func(p *params) *bool { return &p.try })},
	"only_new":   {fieldOnlyNew, readFlag(func(p *params) *bool { return &p.onlyNew })},
	"reason":     {fieldReason, readReason},
	"mode":       {fieldMode, readMode},
	"semaphores": {fieldSemaphores, readWants},
	"leases":     {fieldLeases, readWants},
	"on_end":     {fieldOnEnd, readOnEnd},
	"epoch":      {fieldEpoch, readEpoch},
	"key":        {fieldKey, readKey},
	"token":      {fieldToken, readToken},
}

// read takes an object's members into p, those of allowed only.
func (p *params) read(v value, allowed fields) error {
	if !v.isObject() {
		return invalid("", "The body is a JSON object.")
	}
	for raw, of := range v.members() {
		m, known := members[string(raw)]
		if !known || !allowed.has(m.field) {
			return invalid(string(raw), "This request does not take this member.")
		}
		if err := m.read(p, string(raw), of); err != nil {
			return err
		}
		p.given |= m.field
	}
	if p.given.has(fieldName) {
		p.given |= fieldSemaphore
	}
	return nil
}

// lacking answers the name of a member among the needed that was not given.
func (p *params) lacking(needed fields) (string, bool) {
	missing := ""
	for name, m := range members {
		if needed.has(m.field) && !p.given.has(m.field) && (missing == "" || name < missing) {
			missing = name
		}
	}
	return missing, missing != ""
}

func readText(set func(*params, string)) func(*params, string, value) error {
	return func(p *params, name string, v value) error {
		text, ok := v.text()
		if !ok {
			return invalid(name, "This is not a text.")
		}
		set(p, text)
		return nil
	}
}

func readNatural(of func(*params) *int64) func(*params, string, value) error {
	return func(p *params, name string, v value) error {
		n, ok := v.integer()
		if !ok || n < 0 {
			return invalid(name, "This is not a whole number from 0 to 9223372036854775807.")
		}
		*of(p) = n
		return nil
	}
}

func readFlag(of func(*params) *bool) func(*params, string, value) error {
	return func(p *params, name string, v value) error {
		b, ok := v.boolean()
		if !ok {
			return invalid(name, "This is neither true nor false.")
		}
		*of(p) = b
		return nil
	}
}

func readSemaphore(p *params, name string, v value) (err error) {
	text, _ := v.text() // what is no text is no name either
	p.semaphore, err = semaphoreName(name, text)
	return err
}

func readSession(p *params, name string, v value) (err error) {
	text, ok := v.text()
	if !ok {
		return invalid(name, "A session id is given as a text, since it may exceed what JavaScript's numbers hold.")
	}
	p.session, err = sessionID(name, text)
	return err
}

// readCount leaves the lower bound to the state machine, whose order of checks
// says what is told first.
func readCount(p *params, name string, v value) error {
	n, ok := v.integer()
	if !ok {
		return invalid(name, "This is not a whole number from 1 to 9223372036854775807.")
	}
	p.count = n
	return nil
}

func readLevel(p *params, name string, v value) error {
	p.level = nil
	if v.isNull() {
		return nil
	}
	n, ok := v.integer()
	if !ok || n != int64(int32(n)) {
		return invalid(name, "A level is a whole number from -2147483648 to 2147483647, or null for none.")
	}
	level := int32(n)
	p.level = &level
	return nil
}

const metadataForm = "Metadata is an object of up to 16 texts, 1,024 bytes in all."

func readMetadata(p *params, name string, v value) error {
	p.metadata = nil
	if v.isNull() {
		return nil
	}
	if !v.isObject() {
		return invalid(name, metadataForm)
	}
	for key, of := range v.members() {
		text, ok := of.text()
		if !ok || len(p.metadata) == 16 {
			return invalid(name, metadataForm)
		}
		p.metadata = append(p.metadata, fsm.Pair{Key: string(key), Value: text})
	}
	sort.Slice(p.metadata, func(i, j int) bool { return p.metadata[i].Key < p.metadata[j].Key })
	if !fsm.ValidMetadata(p.metadata) {
		return invalid(name, metadataForm)
	}
	return nil
}

func readTTL(p *params, name string, v value) error {
	ms, ok := v.duration(fsm.MaxTTLMS)
	if !ok {
		return invalid(name, "A ttl is "+durationForm+", from 1 ms to 100 years.")
	}
	p.ttlMS = ms
	return nil
}

func readWait(p *params, _ string, v value) error {
	ms, ok := v.duration(p.maxWaitMS)
	if !ok {
		return badWait(p.maxWaitMS)
	}
	p.waitMS = ms
	return nil
}

func readReason(p *params, name string, v value) error {
	text, ok := v.text()
	if !ok || !fsm.ValidReason(text) {
		return invalid(name, reasonForm)
	}
	p.reason = text
	return nil
}

func readMode(p *params, name string, v value) error {
	switch text, _ := v.text(); text {
	case "all":
		p.mode = fsm.All
	case "any":
		p.mode = fsm.Any
	default:
		return invalid(name, `A mode is "all" or "any".`)
	}
	return nil
}

func readOnEnd(p *params, name string, v value) error {
	switch text, _ := v.text(); text {
	case "return":
	case "keep":
		p.keep = true
	default:
		return invalid(name, `This is neither "return" nor "keep".`)
	}
	return nil
}

func readEpoch(p *params, name string, v value) error {
	n, ok := v.integer()
	if !ok || n < 1 {
		return invalid(name, "An epoch is a whole number from 1 to 9223372036854775807.")
	}
	p.epoch = uint64(n)
	return nil
}

func readToken(p *params, name string, v value) error {
	n, ok := v.integer()
	if !ok || n < 1 {
		return invalid(name, "A token is a whole number from 1 on, as the lease's reply has it.")
	}
	p.token = uint64(n)
	return nil
}

func readKey(p *params, name string, v value) error {
	text, _ := v.text()
	if !validKey(text) {
		return invalid(name, keyForm)
	}
	p.key = text
	return nil
}

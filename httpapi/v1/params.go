package v1

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// fields is a set of members and parameters of requests.
type fields uint64

const (
	fieldOp fields = 1 << iota
	fieldSemaphore
	fieldName // name of the semaphore, in the body of POST /v1/semaphores
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
	fieldShowLeases // ?leases of a renewal
	fieldMatch      // If-Match, on single routes only
	fieldItem
	fieldBase64
	fieldFlags
	fieldIfVersion
	fieldRelease // on single routes only; in a batch, release is an operation
	fieldAbout
	fieldOnEndItems
	fieldItemDelay
	fieldGroup
	fieldHeadStart // head start of a request, or setting of a semaphore
	fieldGroups
	fieldPerGroup
	fieldPaused
	fieldMaxWaiting
	fieldWhenFull
	fieldLimit
	fieldWindow
	fieldCooldown
	fieldOnLost
	fieldMaxHold
	fieldSlots
	fieldAbove
)

const (
	// fieldSettings are the optional settings of a semaphore.
	fieldSettings = fieldGroups | fieldPerGroup | fieldPaused | fieldMaxWaiting | fieldWhenFull | fieldHeadStart |
		fieldWindow | fieldCooldown | fieldOnLost | fieldMaxHold | fieldSlots
	// fieldEither are parameters that the query may have instead of the body.
	fieldEither = fieldWait | fieldGroup
)

func (f fields) has(all fields) bool { return f&all == all }

// params are the parameters of one operation, from a request or from a member of a batch. A parameter has its default
// unless present has its bit.
type params struct {
	present fields
	op      string // name of the operation in a batch

	semaphore string
	session   uint64
	permits   int64
	level     *int32 // nil: null in the body
	metadata  []fsm.Pair
	count     int64
	ttlMS     int64
	waitMS    int64
	partial   bool
	value     int64
	reason    string
	mode      fsm.Mode
	wants     []fsm.Want // semaphores or leases
	slots     [][]uint32 // slots of each lease, in the order of wants
	keep      bool
	epoch     uint64
	token     uint64
	try       bool
	leases    bool // list the leases in the reply to a renewal
	onlyNew   bool
	match     reads.SettingsTag
	key       string // Idempotency-Key

	item        string
	bytes       string // value of an item
	textual     bool   // the member value is a text, not a number
	flags       uint64
	ifVersion   int64
	release     bool
	about       string
	deleteItems bool
	itemDelayMS int64

	group       string
	headStartMS int64 // negative: null in the body
	limit       int64
	above       int64
	settings    fsm.SettingsChange // settings other than the head start

	maxWaitMS int64
}

type member struct {
	field fields
	read  func(p *params, name string, v strictjson.Value) error
}

// bodyMembers are the readers of all members of bodies and batches. The row of an operation says which members it
// takes.
var bodyMembers = map[string]member{
	"op":         {fieldOp, readOp},
	"semaphore":  {fieldSemaphore, readSemaphore},
	"name":       {fieldName, readSemaphore},
	"session":    {fieldSession, readSession},
	"permits":    {fieldPermits, readPermits},
	"value":      {fieldValue, readValue},
	"level":      {fieldLevel, readLevel},
	"metadata":   {fieldMetadata, readMetadata},
	"count":      {fieldCount, readCount},
	"ttl":        {fieldTTL, readTTL},
	"wait":       {fieldWait, readWait},
	"partial":    {fieldPartial, readFlag(func(p *params) *bool { return &p.partial })},
	"try":        {fieldTry, readFlag(func(p *params) *bool { return &p.try })},
	"if_match":   {fieldMatch, readMatch},
	"only_new":   {fieldOnlyNew, readFlag(func(p *params) *bool { return &p.onlyNew })},
	"reason":     {fieldReason, readReason},
	"mode":       {fieldMode, readMode},
	"semaphores": {fieldSemaphores, readWants},
	"leases":     {fieldLeases, readWants},
	"on_end":     {fieldOnEnd, readEnd("return", "keep", func(p *params) { p.keep = true })},
	"epoch":      {fieldEpoch, readPositive("An epoch is a whole number from 1 to 9223372036854775807.", func(p *params) *uint64 { return &p.epoch })},
	"key":        {fieldKey, readKey},
	"token":      {fieldToken, readPositive("A token is a whole number from 1 on, as the lease's reply has it.", func(p *params) *uint64 { return &p.token })},

	"item":         {fieldItem, readItem},
	"value_base64": {fieldBase64, readBase64},
	"flags":        {fieldFlags, readFlags},
	"if_version":   {fieldIfVersion, readNatural(func(p *params) *int64 { return &p.ifVersion })},
	"release":      {fieldRelease, readFlag(func(p *params) *bool { return &p.release })},
	"about":        {fieldAbout, readAbout},
	"on_end_items": {fieldOnEndItems, readEnd("release", "delete", func(p *params) { p.deleteItems = true })},
	"item_delay":   {fieldItemDelay, readItemDelay},

	"group":       {fieldGroup, readGroup},
	"head_start":  {fieldHeadStart, readHeadStart},
	"groups":      {fieldGroups, readGroups},
	"per_group":   {fieldPerGroup, readBound(math.MaxInt64, func(s *fsm.SettingsChange) *fsm.Change[int64] { return &s.PerGroup })},
	"paused":      {fieldPaused, readPaused},
	"max_waiting": {fieldMaxWaiting, readBound(fsm.MaxWaitingLimit, func(s *fsm.SettingsChange) *fsm.Change[int64] { return &s.MaxWaiting })},
	"when_full":   {fieldWhenFull, readWhenFull},
	"limit":       {fieldLimit, readLimit},
	"above":       {fieldAbove, readAbove},
	"window": {fieldWindow, readSpan(fsm.MinWindowMS, fsm.MaxWindowMS, "100ms to 744h",
		func(s *fsm.SettingsChange) *fsm.Change[int64] { return &s.WindowMS })},
	"cooldown": {fieldCooldown, readSpan(0, fsm.MaxCooldownMS, "0 to 24h", func(s *fsm.SettingsChange) *fsm.Change[int64] { return &s.CooldownMS })},
	"on_lost":  {fieldOnLost, readOnLost},
	"max_hold": {fieldMaxHold, readSpan(fsm.MinHoldMS, fsm.MaxTTLMS, "1s to 100 years",
		func(s *fsm.SettingsChange) *fsm.Change[int64] { return &s.MaxHoldMS })},
	"slots": {fieldSlots, readSlots},
}

// queryParams are the readers of the query parameters of single routes. In a batch, bodyMembers reads the same
// parameters.
var queryParams = []struct {
	field fields
	name  string
	read  func(p *params, q exchange.Query) error
}{
	{fieldEpoch, "epoch", func(p *params, q exchange.Query) (err error) { p.epoch, err = q.Epoch(); return err }},
	{fieldToken, "token", func(p *params, q exchange.Query) (err error) { p.token, err = q.Token(); return err }},
	{fieldTry, "try", func(p *params, q exchange.Query) (err error) { p.try, err = q.Flag("try"); return err }},
	{fieldShowLeases, "leases", func(p *params, q exchange.Query) (err error) { p.leases, err = q.Flag("leases"); return err }},
	{fieldWait, "wait", func(p *params, q exchange.Query) (err error) { p.waitMS, err = q.WaitMS(p.maxWaitMS); return err }},
	{fieldReason, "reason", func(p *params, q exchange.Query) (err error) { p.reason, err = q.Reason(); return err }},
	{fieldGroup, "group", func(p *params, q exchange.Query) (err error) { p.group, _, err = q.Group(); return err }},
	{fieldIfVersion, "if_version", func(p *params, q exchange.Query) (err error) { p.ifVersion, err = q.Version(); return err }},
}

// readPath reads the parameters of the route's path.
func (p *params) readPath(c echo.Context, names fields) (err error) {
	for _, param := range c.ParamNames() {
		text, ok := exchange.PathParam(c, param)
		switch {
		case !ok:
			return exchange.Invalid(param, "The path's percent-encoding can't be read.")
		case param == "name" && names.has(fieldItem):
			p.present |= fieldItem
			p.item, err = exchange.ItemName(param, text)
		case param == "name":
			p.present |= fieldSemaphore
			p.semaphore, err = exchange.SemaphoreName(param, text)
		case param == "token":
			p.present |= fieldToken
			p.token, err = exchange.TokenNumber(param, text)
		case param == "group":
			p.present |= fieldGroup
			p.group, err = exchange.GroupSegment(param, text)
		default:
			p.present |= fieldSession
			p.session, err = exchange.SessionID("session", text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readQuery reads the query. It also takes the parameters of fieldEither that the body may have.
func (p *params) readQuery(c echo.Context, op *operation) error {
	if c.Request().URL.RawQuery == "" {
		return nil
	}
	var names []string
	for _, known := range queryParams {
		if (op.query | op.body&fieldEither).has(known.field) {
			names = append(names, known.name)
		}
	}
	q, err := exchange.ParseQuery(c, names...)
	if err != nil {
		return err
	}
	for _, known := range queryParams {
		if _, present := q.Text(known.name); !present {
			continue
		}
		if err := known.read(p, q); err != nil {
			return err
		}
		p.present |= known.field
	}
	return nil
}

// readHeader reads Idempotency-Key and the conditional headers, after refuseConditions.
func (p *params) readHeader(header http.Header, op *operation) (err error) {
	if p.key, err = exchange.IdempotencyKey(header); err != nil {
		return err
	}
	if conditions, present := header["If-None-Match"]; present {
		if !op.query.has(fieldOnlyNew) || len(conditions) != 1 || conditions[0] != "*" {
			return exchange.Invalid("If-None-Match", noneMatchForm)
		}
		p.onlyNew = true
	}
	if tags, present := header["If-Match"]; present {
		quoted := strings.Join(tags, " ") // several tags are refused, because a tag can't have a space
		text, begins := strings.CutPrefix(quoted, `"`)
		text, ends := strings.CutSuffix(text, `"`)
		var ok bool
		if p.match, ok = reads.ParseSettingsTag(text); !ok || !begins || !ends {
			return exchange.Invalid("If-Match", matchForm)
		}
		p.present |= fieldMatch
	}
	return nil
}

// readMembers reads the members of an object. It refuses members that are not in allowed.
func (p *params) readMembers(v strictjson.Value, allowed fields) error {
	if !v.IsObject() {
		return exchange.Invalid("", "The body is a JSON object.")
	}
	for raw, value := range v.Members() {
		m, known := bodyMembers[string(raw)]
		if !known || !allowed.has(m.field) {
			return exchange.Invalid(string(raw), "This request does not take this member.")
		}
		if err := m.read(p, string(raw), value); err != nil {
			return err
		}
		p.present |= m.field
	}
	if p.present.has(fieldName) {
		p.present |= fieldSemaphore
	}
	return nil
}

// firstName returns the name of a member in a set that comes first in the alphabet; "" for an empty set.
func firstName(set fields) string {
	first := ""
	if set == 0 {
		return first
	}
	for name, m := range bodyMembers {
		if set.has(m.field) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

const naturalForm = "This is not a whole number from 0 to 9223372036854775807."

func readNatural(target func(*params) *int64) func(*params, string, strictjson.Value) error {
	return func(p *params, name string, v strictjson.Value) error {
		n, ok := v.Integer()
		if !ok || n < 0 {
			return exchange.Invalid(name, naturalForm)
		}
		*target(p) = n
		return nil
	}
}

// readPermits reads a number of permits, or null for a semaphore without a total.
func readPermits(p *params, name string, v strictjson.Value) error {
	if p.permits, p.settings.Family = 0, v.IsNull(); v.IsNull() {
		return nil
	}
	return readNatural(func(p *params) *int64 { return &p.permits })(p, name, v)
}

// readBound returns a reader of a number from 1 to highest, or of null for no bound.
func readBound(highest int64, target func(*fsm.SettingsChange) *fsm.Change[int64]) func(*params, string, strictjson.Value) error {
	return func(p *params, name string, v strictjson.Value) error {
		n, ok := v.Integer()
		if !v.IsNull() && (!ok || n < 1 || n > highest) {
			return exchange.Invalid(name, fmt.Sprintf("This is not a whole number from 1 to %d, or null.", highest))
		}
		*target(&p.settings) = fsm.Change[int64]{Given: true, Value: n} // n is 0 for null
		return nil
	}
}

// readLimit reads the limit of a group, or null to remove it.
func readLimit(p *params, name string, v strictjson.Value) error {
	if p.limit = fsm.NoLimit; v.IsNull() {
		return nil
	}
	return readNatural(func(p *params) *int64 { return &p.limit })(p, name, v)
}

// readAbove reads the highest token of another cluster.
func readAbove(p *params, name string, v strictjson.Value) error {
	n, ok := v.Integer()
	if !ok || n < 0 || n > fsm.MaxRaise {
		return exchange.Invalid(name, fmt.Sprintf("This is not a token: a whole number from 0 to %d.", fsm.MaxRaise))
	}
	p.above = n
	return nil
}

// readChoice returns the position of a text in texts, from 1; 0 for null.
func readChoice(name string, v strictjson.Value, texts ...string) (int, error) {
	text, ok := v.Text()
	i := slices.Index(texts, text)
	if !v.IsNull() && (!ok || i < 0) {
		return 0, exchange.Invalid(name, "This is neither "+strconv.Quote(texts[0])+" nor "+strconv.Quote(texts[1])+", nor null.")
	}
	return i + 1, nil
}

func readGroups(p *params, name string, v strictjson.Value) error {
	chosen, err := readChoice(name, v, fsm.ByRequest.String(), fsm.ByOwner.String())
	p.settings.Groups = fsm.Change[fsm.Grouping]{Given: true, Value: fsm.Grouping(chosen)}
	return err
}

func readWhenFull(p *params, name string, v strictjson.Value) error {
	chosen, err := readChoice(name, v, exchange.Refuse, exchange.DropOldest)
	p.settings.DropOldest = fsm.Change[bool]{Given: true, Value: chosen == 2}
	return err
}

func readPaused(p *params, name string, v strictjson.Value) error {
	text, ok := v.Text()
	if !v.IsNull() && (!ok || text == "" || !fsm.ValidReason(text)) {
		return exchange.Invalid(name, "The reason of a pause is 1 to 1,024 bytes of UTF-8 without control characters; null ends it.")
	}
	p.settings.Paused = fsm.Change[string]{Given: true, Value: text}
	return nil
}

func readGroup(p *params, name string, v strictjson.Value) (err error) {
	text, ok := v.Text()
	if !ok {
		return exchange.Invalid(name, exchange.GroupForm)
	}
	p.group, err = exchange.GroupName(name, text)
	return err
}

// readHeadStart reads the head start of a request, or the setting of a semaphore, which may be null. In a batch the
// operation may not be known yet, so checkHeadStart checks later which of the two it must be.
func readHeadStart(p *params, name string, v strictjson.Value) error {
	if p.headStartMS = -1; v.IsNull() {
		return nil
	}
	ms, ok := exchange.JSONDuration(v, fsm.MaxTTLMS)
	if !ok {
		return exchange.Invalid(name, headStartForm)
	}
	p.headStartMS = ms
	return nil
}

const headStartForm = "A head_start is " + exchange.DurationForm + ". A semaphore allows up to 24h, or null."

// checkHeadStart checks the head start of a request or, if setting is true, of a semaphore.
func checkHeadStart(p *params, setting bool) error {
	if !setting && p.headStartMS < 0 || setting && p.headStartMS > fsm.MaxHeadStartMS {
		return exchange.Invalid("head_start", headStartForm)
	}
	return nil
}

// readSpan returns a reader of a duration, or of null to clear the setting.
func readSpan(lowest, highest int64, bounds string, target func(*fsm.SettingsChange) *fsm.Change[int64]) func(*params, string, strictjson.Value) error {
	return func(p *params, name string, v strictjson.Value) error {
		ms, ok := exchange.JSONDuration(v, highest)
		if !v.IsNull() && (!ok || ms < lowest) {
			return exchange.Invalid(name, "A "+name+" is "+exchange.DurationForm+", from "+bounds+", or null.")
		}
		*target(&p.settings) = fsm.Change[int64]{Given: true, Value: ms} // ms is 0 for null
		return nil
	}
}

func readOnLost(p *params, name string, v strictjson.Value) error {
	p.settings.OnLostMS.Given = true
	switch text, _ := v.Text(); {
	case v.IsNull() || text == exchange.Release:
		p.settings.OnLostMS.Value = 0
	case text == exchange.Quarantine:
		p.settings.OnLostMS.Value = fsm.Quarantine
	default:
		ms, ok := exchange.JSONDuration(v, fsm.MaxCooldownMS)
		if !ok || ms == 0 {
			return exchange.Invalid(name, `An on_lost is "release", "quarantine", a duration from 1ms to 24h, or null.`)
		}
		p.settings.OnLostMS.Value = ms
	}
	return nil
}

func readSlots(p *params, name string, v strictjson.Value) error {
	if p.settings.Slots = (fsm.Change[bool]{Given: true}); v.IsNull() {
		return nil
	}
	return readFlag(func(p *params) *bool { return &p.settings.Slots.Value })(p, name, v)
}

func readPositive(form string, target func(*params) *uint64) func(*params, string, strictjson.Value) error {
	return func(p *params, name string, v strictjson.Value) error {
		n, ok := v.Integer()
		if !ok || n < 1 {
			return exchange.Invalid(name, form)
		}
		*target(p) = uint64(n)
		return nil
	}
}

func readFlag(target func(*params) *bool) func(*params, string, strictjson.Value) error {
	return func(p *params, name string, v strictjson.Value) error {
		b, ok := v.Boolean()
		if !ok {
			return exchange.Invalid(name, "This is neither true nor false.")
		}
		*target(p) = b
		return nil
	}
}

func readOp(p *params, name string, v strictjson.Value) error {
	var ok bool
	if p.op, ok = v.Text(); !ok {
		return exchange.Invalid(name, "This is not a text.")
	}
	return nil
}

func readSemaphore(p *params, name string, v strictjson.Value) (err error) {
	text, _ := v.Text() // "" for other JSON values, which is not a valid name
	p.semaphore, err = exchange.SemaphoreName(name, text)
	return err
}

func readSession(p *params, name string, v strictjson.Value) (err error) {
	text, ok := v.Text()
	if !ok {
		return exchange.Invalid(name, "A session id is given as a text, since it may exceed what JavaScript's numbers hold.")
	}
	p.session, err = exchange.SessionID(name, text)
	return err
}

// readCount does not check the lower bound, because the order of the checks in the state machine decides which refusal
// comes first.
func readCount(p *params, name string, v strictjson.Value) error {
	n, ok := v.Integer()
	if !ok {
		return exchange.Invalid(name, "This is not a whole number from 1 to 9223372036854775807.")
	}
	p.count = n
	return nil
}

func readLevel(p *params, name string, v strictjson.Value) error {
	p.level = nil
	if v.IsNull() {
		return nil
	}
	n, ok := v.Integer()
	if !ok || n != int64(int32(n)) {
		return exchange.Invalid(name, "A level is a whole number from -2147483648 to 2147483647, or null for no level.")
	}
	level := int32(n)
	p.level = &level
	return nil
}

const metadataForm = "Metadata is an object of up to 16 texts, 1,024 bytes in all."

func readMetadata(p *params, name string, v strictjson.Value) error {
	p.metadata = nil
	if v.IsNull() {
		return nil
	}
	if !v.IsObject() {
		return exchange.Invalid(name, metadataForm)
	}
	for key, value := range v.Members() {
		text, ok := value.Text()
		if !ok || len(p.metadata) == 16 {
			return exchange.Invalid(name, metadataForm)
		}
		p.metadata = append(p.metadata, fsm.Pair{Key: string(key), Value: text})
	}
	slices.SortFunc(p.metadata, func(a, b fsm.Pair) int { return strings.Compare(a.Key, b.Key) })
	if !fsm.ValidMetadata(p.metadata) {
		return exchange.Invalid(name, metadataForm)
	}
	return nil
}

func readTTL(p *params, name string, v strictjson.Value) error {
	ms, ok := exchange.JSONDuration(v, fsm.MaxTTLMS)
	if !ok {
		return exchange.Invalid(name, "A ttl is "+exchange.DurationForm+", from 1 ms to 100 years.")
	}
	p.ttlMS = ms
	return nil
}

func readWait(p *params, _ string, v strictjson.Value) error {
	ms, ok := exchange.JSONDuration(v, p.maxWaitMS)
	if !ok {
		return exchange.BadWait(p.maxWaitMS)
	}
	p.waitMS = ms
	return nil
}

func readReason(p *params, name string, v strictjson.Value) error {
	text, ok := v.Text()
	if !ok || !fsm.ValidReason(text) {
		return exchange.Invalid(name, exchange.ReasonForm)
	}
	p.reason = text
	return nil
}

func readMode(p *params, name string, v strictjson.Value) error {
	switch text, _ := v.Text(); text {
	case "all":
		p.mode = fsm.All
	case "any":
		p.mode = fsm.Any
	default:
		return exchange.Invalid(name, `A mode is "all" or "any".`)
	}
	return nil
}

// readEnd returns a reader of the member that says what the end of a session does. The member is either usual, the
// default, or other; the reader calls set for other.
func readEnd(usual, other string, set func(p *params)) func(p *params, name string, v strictjson.Value) error {
	return func(p *params, name string, v strictjson.Value) error {
		switch text, _ := v.Text(); text {
		case usual:
		case other:
			set(p)
		default:
			return exchange.Invalid(name, "This is neither "+strconv.Quote(usual)+" nor "+strconv.Quote(other)+".")
		}
		return nil
	}
}

func readKey(p *params, name string, v strictjson.Value) (err error) {
	text, _ := v.Text()
	p.key, err = exchange.CheckKey(name, text)
	return err
}

// maxLeases bounds the leases in a restore. It is the default limit for the leases of a session. The state machine
// checks a lower configured limit.
const maxLeases = 4096

// readWants reads [{"name":…,"count":…,"group":…}, …]. It refuses a repeated pair of name and group. By default count
// is 1 and group is "".
func readWants(p *params, name string, v strictjson.Value) error {
	longest, shortest := fsm.MaxMembers, 1
	if name == "leases" {
		longest, shortest = maxLeases, 0
	}
	if !v.IsArray() {
		return exchange.Invalid(name, `This is not a list of {"name", "count", "group"}.`)
	}
	p.wants, p.slots = nil, nil
	seen := map[fsm.Want]bool{}
	for item := range v.Items() {
		if len(p.wants) == longest {
			return exchange.Invalid(name, "This list has more than "+strconv.Itoa(longest)+" members.")
		}
		want, slots, err := readWant(name, item)
		if err != nil {
			return err
		}
		place := fsm.Want{Semaphore: want.Semaphore, Group: want.Group}
		if seen[place] {
			return exchange.Invalid(name, "This list names a semaphore twice.")
		}
		seen[place] = true
		p.wants, p.slots = append(p.wants, want), append(p.slots, slots)
	}
	if len(p.wants) < shortest {
		return exchange.Invalid(name, "This list is empty.")
	}
	return nil
}

func readWant(list string, v strictjson.Value) (want fsm.Want, slots []uint32, err error) {
	p := params{count: 1}
	if !v.IsObject() {
		return want, nil, exchange.Invalid(list, `A member of this list is {"name", "count", "group"}.`)
	}
	for raw, value := range v.Members() {
		switch name := string(raw); name {
		case "name":
			err = readSemaphore(&p, name, value)
		case "count":
			err = readCount(&p, name, value)
		case "group":
			err = readGroup(&p, name, value)
		case "slots":
			if err = exchange.Invalid(name, "A member of this list does not take this member."); list == "leases" {
				slots, err = readSlotNumbers(name, value)
			}
		default:
			err = exchange.Invalid(name, "A member of this list does not take this member.")
		}
		if err != nil {
			return want, nil, err
		}
	}
	if p.semaphore == "" {
		return want, nil, exchange.Invalid(list, "A member of this list has no name.")
	}
	return fsm.Want{Semaphore: p.semaphore, Count: p.count, Group: p.group}, slots, nil
}

// readSlotNumbers reads the numbers of the slots of a lease.
func readSlotNumbers(name string, v strictjson.Value) (slots []uint32, err error) {
	refusal := exchange.Invalid(name, "Slots are a list of up to 1,024 numbers from 0 to 1048575.")
	if !v.IsArray() {
		return nil, refusal
	}
	for item := range v.Items() {
		n, ok := item.Integer()
		if !ok || n < 0 || n >= 1<<20 || len(slots) == 1<<10 {
			return nil, refusal
		}
		slots = append(slots, uint32(n))
	}
	return slots, nil
}

const matchForm = "If-Match is one ETag as a reply has it: epoch.settings, in quotes. In a batch if_match is without the quotes."

func readMatch(p *params, name string, v strictjson.Value) error {
	text, _ := v.Text() // "" for other JSON values, which is not a valid tag
	var ok bool
	if p.match, ok = reads.ParseSettingsTag(text); !ok {
		return exchange.Invalid(name, matchForm)
	}
	return nil
}

package fsm

import (
	"math"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// scriptLine is one command of a script: positional words and options.
type scriptLine struct {
	t       *testing.T
	d       *datadriven.TestData
	words   []string
	options map[string]string
}

// parseCommand reads e.g. `acquire s1 db 2 ttl=30s try key=abc`. It returns the command and
// its frame: key=, owner=, trace=, and the limits of the owner, as in may=sessions:2,leases:1.
func parseCommand(t *testing.T, d *datadriven.TestData, text string) (Command, Envelope) {
	l := &scriptLine{t: t, d: d, options: map[string]string{}}
	for _, field := range strings.Fields(text) {
		if name, value, ok := strings.Cut(field, "="); ok {
			l.options[name] = value
		} else {
			l.words = append(l.words, field)
		}
	}
	framed := Envelope{Key: l.options["key"], Owner: l.options["owner"], Limits: l.ownerLimits(), Trace: l.options["trace"]}
	switch l.words[0] {
	case "start-term":
		return l.startTerm(), framed
	case "raise-level":
		return RaiseLevel{Level: uint32(l.count(1))}, framed
	case "raise-tokens":
		return RaiseTokens{Above: uint64(l.count(1))}, framed
	case "notice-done":
		return NoticeDone{IDs: []uint64{uint64(l.count(1))}}, framed
	case "put", "create", "delete", "up", "down", "set", "group-put", "free-lost":
		return l.semaphoreCommand(), framed
	}
	if strings.HasPrefix(l.words[0], "item-") {
		return l.itemCommand(), framed
	}
	return l.sessionCommand(), framed
}

func (l *scriptLine) startTerm() Command {
	limits := DefaultLimits()
	limits.Semaphores = l.number("semaphores", limits.Semaphores)
	limits.Sessions = l.number("sessions", limits.Sessions)
	limits.SessionLeases = l.number("session-leases", limits.SessionLeases)
	limits.SessionWaiting = l.number("session-waiting", limits.SessionWaiting)
	limits.Leases = l.number("leases", limits.Leases)
	limits.Waiting = l.number("waiting", limits.Waiting)
	limits.Queue = l.number("queue", limits.Queue)
	limits.WaitList = l.number("wait-list", limits.WaitList)
	limits.Keys = l.number("keys", limits.Keys)
	limits.KeyBytes = l.number("key-bytes", limits.KeyBytes)
	return StartTerm{Term: uint64(l.count(1)), Leader: "n1", Limits: limits, Jump: l.flag("jump")}
}

func (l *scriptLine) semaphoreCommand() Command {
	name, epoch := l.words[1], uint64(l.number("epoch", 0))
	switch l.words[0] {
	case "put":
		c := PutSemaphore{Name: name, OnlyNew: l.flag("only-new"), OnlyExisting: l.flag("only-existing"), Epoch: epoch, Level: Change[*int32]{l.has("level"), l.level()},
			Metadata: Change[[]Pair]{l.has("meta"), l.metadata()}}
		c.Settings = l.settings()
		if c.Settings.Family {
			c.Permits.Given = true
		} else if len(l.words) > 2 && strings.Trim(l.words[2], "-0123456789") == "" {
			c.Permits = Change[int64]{true, l.count(2)}
		}
		return c
	case "create":
		return CreateSemaphore{Name: name, Permits: l.count(2), Level: l.level(), Metadata: l.metadata(), Settings: l.settings()}
	case "group-put":
		return GroupPut{Name: name, Group: l.options["group"], Limit: l.number("limit", NoLimit), Epoch: epoch}
	case "free-lost":
		return FreeLost{Name: name, Token: uint64(l.count(2)), Reason: l.options["reason"], Epoch: epoch}
	case "delete":
		return DeleteSemaphore{Name: name, Epoch: epoch}
	case "up":
		return Up{Name: name, Count: l.count(2), Epoch: epoch}
	case "set":
		return SetValue{Name: name, Value: l.count(2), Epoch: epoch}
	}
	return Down{Name: name, Count: l.count(2), Partial: l.flag("partial"), Epoch: epoch, WaitMS: l.duration("wait", 0), Session: uint64(l.number("session", 0)), Notice: l.options["notice"],
		Group: l.options["group"], HeadStartMS: l.duration("head-start", 0)}
}

// settings reads e.g. family groups=request per-group=2; paused= and other empty values clear.
func (l *scriptLine) settings() SettingsChange {
	c := SettingsChange{
		Family:     l.flag("family"),
		PerGroup:   Change[int64]{l.has("per-group"), l.number("per-group", 0)},
		Paused:     Change[string]{l.has("paused"), l.options["paused"]},
		MaxWaiting: Change[int64]{l.has("max-waiting"), l.number("max-waiting", 0)},
		DropOldest: Change[bool]{l.has("when-full"), l.options["when-full"] == "drop-oldest"},
		Slots:      Change[bool]{l.has("slots"), l.options["slots"] == "on"},
	}
	if l.has("groups") {
		c.Groups = Change[Grouping]{true, map[string]Grouping{"": NoGroups, "request": ByRequest, "owner": ByOwner}[l.options["groups"]]}
	}
	for option, member := range map[string]*Change[int64]{
		"head-start": &c.HeadStartMS, "window": &c.WindowMS, "cooldown": &c.CooldownMS, "on-lost": &c.OnLostMS, "max-hold": &c.MaxHoldMS,
	} {
		switch {
		case l.options[option] == "quarantine":
			*member = Change[int64]{true, Quarantine}
		case l.has(option) && l.options[option] == "":
			*member = Change[int64]{Given: true}
		case l.has(option):
			*member = Change[int64]{true, l.duration(option, 0)}
		}
	}
	return c
}

func (l *scriptLine) sessionCommand() Command {
	id, epoch := l.session(1), uint64(l.number("epoch", 0))
	switch l.words[0] {
	case "open":
		return OpenSession{Session: id, TTLMS: l.duration("ttl", 30_000), Metadata: l.metadata(), Keep: l.flag("keep")}
	case "open-holder":
		return OpenHolder{Session: id, TTLMS: l.duration("ttl", 30_000), About: l.options["about"], DeleteItems: l.flag("deletes"), DelayMS: l.duration("delay", 0)}
	case "renew":
		var c Renew
		for i := 1; i < len(l.words); i++ {
			c.Renewals = append(c.Renewals, Renewal{Session: l.session(i), TTLMS: l.duration("ttl", KeepTTL)})
		}
		return c
	case "end":
		return EndSession{Session: id, Operator: l.has("reason"), Reason: l.options["reason"]}
	case "acquire":
		return Acquire{Session: id, Name: l.words[2], Count: l.count(3), TTLMS: l.duration("ttl", KeepTTL), Try: l.flag("try"), Epoch: epoch,
			Group: l.options["group"], HeadStartMS: l.duration("head-start", 0)}
	case "acquire-once":
		return AcquireOnce{Session: id, Name: l.words[2], Count: l.count(3), TTLMS: l.duration("ttl", 30_000), WaitMS: l.duration("wait", 0), Metadata: l.metadata(), Epoch: epoch,
			Group: l.options["group"], HeadStartMS: l.duration("head-start", 0)}
	case "all", "any":
		mode := All
		if l.words[0] == "any" {
			mode = Any
		}
		return AcquireMany{Session: id, Wants: l.wants(2), Mode: mode, Try: l.flag("try"), HeadStartMS: l.duration("head-start", 0)}
	case "release":
		return Release{Session: id, Name: l.words[2], Epoch: epoch, Token: uint64(l.number("token", 0)), Group: l.options["group"]}
	case "resize":
		return ResizeLease{Session: id, Name: l.words[2], Count: l.count(3), Epoch: epoch, Token: uint64(l.number("token", 0)), Group: l.options["group"]}
	case "revoke":
		return RevokeLease{Session: id, Name: l.words[2], Reason: l.options["reason"], Epoch: epoch, Group: l.options["group"]}
	case "list-add":
		return ListAdd{Session: id, Name: l.words[2], Count: l.count(3), Epoch: epoch, Group: l.options["group"]}
	case "list-remove":
		return ListRemove{Session: id, Name: l.words[2], Epoch: epoch, Group: l.options["group"]}
	case "list-deliver":
		return ListDeliver{Session: id}
	case "restore":
		return RestoreSession{Session: id, TTLMS: l.duration("ttl", 30_000), Leases: l.wants(2), Metadata: l.metadata(), Slots: l.slots()}
	}
	l.d.Fatalf(l.t, "unknown command %q", l.words[0])
	return nil
}

// itemCommand reads item-put name value, item-acquire s1 name value, item-delete name; - is the
// empty value, and the empty prefix.
func (l *scriptLine) itemCommand() Command {
	words := append(l.words[1:], "", "", "")
	for i := range words {
		words[i] = strings.TrimPrefix(words[i], "-")
	}
	flags, version := uint64(l.number("flags", 0)), Change[uint64]{l.has("version"), uint64(l.number("version", 0))}
	switch l.words[0] {
	case "item-put":
		return ItemPut{Name: words[0], Value: words[1], Flags: flags, Version: version}
	case "item-acquire":
		return ItemAcquire{Session: l.session(1), Name: words[1], Value: words[2], Flags: flags}
	case "item-release":
		return ItemRelease{Session: l.session(1), Name: words[1], Value: words[2], Flags: flags}
	case "item-delete":
		return ItemDelete{Name: words[0], Version: version}
	case "item-delete-all":
		return ItemDeleteAll{Prefix: words[0]}
	}
	l.d.Fatalf(l.t, "unknown command %q", l.words[0])
	return nil
}

func (l *scriptLine) has(option string) bool { _, ok := l.options[option]; return ok }

func (l *scriptLine) flag(name string) bool {
	for _, w := range l.words {
		if w == name {
			return true
		}
	}
	return false
}

// count reads a positional number, 1 when absent; max is 2^63-1.
func (l *scriptLine) count(i int) int64 {
	if i >= len(l.words) || l.words[i] == "partial" || l.words[i] == "try" {
		return 1
	}
	return l.parse(l.words[i])
}

func (l *scriptLine) number(option string, otherwise int64) int64 {
	if !l.has(option) {
		return otherwise
	}
	return l.parse(l.options[option])
}

func (l *scriptLine) parse(text string) int64 {
	if text == "max" {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		l.d.Fatalf(l.t, "%v", err)
	}
	return n
}

func (l *scriptLine) duration(option string, otherwise int64) int64 {
	if !l.has(option) {
		return otherwise
	}
	v, err := time.ParseDuration(l.options[option])
	if err != nil {
		l.d.Fatalf(l.t, "%v", err)
	}
	return v.Milliseconds()
}

func (l *scriptLine) level() *int32 {
	if !l.has("level") || l.options["level"] == "none" {
		return nil
	}
	level := int32(l.parse(l.options["level"]))
	return &level
}

// metadata reads meta=a:1,b:2.
func (l *scriptLine) metadata() []Pair {
	var pairs []Pair
	for _, part := range strings.Split(l.options["meta"], ",") {
		if name, value, ok := strings.Cut(part, ":"); ok {
			pairs = append(pairs, Pair{name, value})
		}
	}
	sort.Slice(pairs, func(i, j int) bool { return pairs[i].Key < pairs[j].Key })
	return pairs
}

// ownerLimits reads may=sessions:2,leases:3,waiting:1.
func (l *scriptLine) ownerLimits() (may OwnerLimits) {
	for part := range strings.SplitSeq(l.options["may"], ",") {
		name, value, _ := strings.Cut(part, ":")
		switch name {
		case "":
		case "sessions":
			may.Sessions = l.parse(value)
		case "leases":
			may.Leases = l.parse(value)
		case "waiting":
			may.Waiting = l.parse(value)
		default:
			l.d.Fatalf(l.t, "unknown limit %q", name)
		}
	}
	return may
}

// slots reads slots=0+3;1 as the slots 0 and 3 of the first lease, and 1 of the second.
func (l *scriptLine) slots() (lists [][]uint32) {
	for list := range strings.SplitSeq(l.options["slots"], ";") {
		var numbers []uint32
		for number := range strings.SplitSeq(list, "+") {
			if number != "" {
				numbers = append(numbers, uint32(l.parse(number)))
			}
		}
		lists = append(lists, numbers)
	}
	return lists
}

// session reads s7 as 7.
func (l *scriptLine) session(i int) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(l.words[i], "s"), 10, 64)
	if err != nil {
		l.d.Fatalf(l.t, "%v", err)
	}
	return n
}

// wants reads db:2 pool@acme:1 from word i on.
func (l *scriptLine) wants(i int) []Want {
	var wants []Want
	for _, word := range l.words[min(i, len(l.words)):] {
		if name, count, ok := strings.Cut(word, ":"); ok {
			name, group, _ := strings.Cut(name, "@")
			wants = append(wants, Want{Semaphore: name, Count: l.parse(count), Group: group})
		}
	}
	return wants
}

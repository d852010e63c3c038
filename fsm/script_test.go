package fsm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs testdata/*.txt: one script for each operation and for each rule that
// several operations share. A directive is one command in a separate entry (`entry`
// groups the lines below it into one). The expected output is everything that the entry
// did. `go test ./fsm -run TestScripts -rewrite` writes the output anew.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{m: New()}
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// TestScriptsAcrossRestores runs the scripts with a machine that is read from a snapshot of the
// last one after each entry: it does the same as one that has applied all entries.
func TestScriptsAcrossRestores(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{m: New(), restores: true}
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// TestEveryOperationHasItsScript keeps the rule that an operation is one file,
// one row and one script. Both files have the operation's name in the log.
func TestEveryOperationHasItsScript(t *testing.T) {
	for op := OpStartTerm; op < opCount; op++ {
		name := strings.ReplaceAll(op.String(), "-", "_")
		for _, path := range []string{"op_" + name + ".go", "testdata/" + name + ".txt"} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("operation %v: %v", op, err)
			}
		}
	}
}

// script is a machine driven by directives.
type script struct {
	m     *Machine
	index uint64
	stamp int64
	seq   uint64

	restores bool // the machine is read from its snapshot after each entry
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var lines []string
	switch d.Cmd {
	case "state":
		return s.state()
	case "items":
		return s.items()
	case "groups":
		return s.groups(d.CmdArgs[0].Key)
	case "index": // of a name, or below a prefix
		if args := d.CmdArgs; args[0].Key == "below" {
			return fmt.Sprintln(s.m.ItemsIndex(strings.Trim(args[1].Key, "-")))
		}
		return fmt.Sprintln(s.m.ItemIndex(d.CmdArgs[0].Key))
	case "budget": // of each entry from now on
		d.ScanArgs(t, "ended", &s.m.budget.ended)
		d.ScanArgs(t, "served", &s.m.budget.served)
		s.m.budget.swept = 1
		if d.HasArg("lanes") {
			d.ScanArgs(t, "lanes", &s.m.budget.lanes)
		}
		return ""
	case "tick":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.stamp += by.Milliseconds()
	case "entry":
		lines = strings.Split(strings.TrimSpace(d.Input), "\n")
	default:
		lines = []string{commandLine(d)}
	}
	var commands [][]byte
	for _, line := range lines {
		command, framed := parseCommand(t, d, line)
		s.seq++
		framed.Request = RequestID{Origin: 1, Sequence: s.seq}
		commands = append(commands, framed.Encode(command))
	}
	s.index++
	applied := s.m.Apply(s.index, EncodeEntry(s.stamp, commands))
	if err := s.m.check(); err != nil {
		d.Fatalf(t, "invariant broken: %v", err)
	}
	if s.restores {
		restored, err := Restore(bytes.NewReader(snapshotOf(t, s.m.Freeze())))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		restored.budget = s.m.budget
		s.m = restored
	}
	return describe(applied)
}

func commandLine(d *datadriven.TestData) string {
	parts := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		parts = append(parts, a.String())
	}
	return strings.Join(parts, " ")
}

// describe lists everything that an entry did, one line each.
func describe(a *Applied) string {
	var b strings.Builder
	for _, c := range a.Commands {
		fmt.Fprintf(&b, "%s\n", resultText(&c.Result))
		for i := range c.Result.Each {
			fmt.Fprintf(&b, "  %s\n", resultText(&c.Result.Each[i]))
		}
	}
	for _, e := range a.Effects {
		fmt.Fprintf(&b, "* %s\n", effectText(&e))
	}
	for _, c := range a.Conclusions {
		fmt.Fprintf(&b, "> place %d: %s\n", c.Place, resultText(&c.Result))
	}
	if a.MoreDue {
		b.WriteString("more are due\n")
	}
	return b.String()
}

func resultText(r *Result) string {
	parts, why := []string{r.Code.String()}, r.Why()
	add := func(shown bool, format string, args ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Rule != RuleNone, "(%s)", r.Rule)
	add(why.Limit != 0, "of %d", why.Limit)
	add(r.Subject != "", "%s", r.Subject)
	add(r.Created, "created")
	add(r.Found, "found")
	add(r.Replayed, "replayed")
	add(r.Joined, "joined")
	add(r.TookOver, "took over")
	add(r.Session != 0, "s%d", r.Session)
	add(r.OneShot, "one-shot")
	add(r.DeadlineMS != 0, "until %s", clockText(r.DeadlineMS))
	add(r.Waiting, "session-waits")
	add(r.Place != 0, "place %d", r.Place)
	add(r.Position != 0, "position %d", r.Position)
	add(r.Epoch != 0, "epoch %d", r.Epoch)
	add(r.Version != 0 && r.Epoch == 0, "version %d", r.Version) // of an item
	add(r.Locks != 0, "locks %d", r.Locks)
	add(why.DelayMS != 0, "in %s", clockText(why.DelayMS))
	add(r.More, "more")
	add(r.Granted != 0, "granted %d", r.Granted)
	add(r.Value != 0, "value %d", r.Value)
	for _, g := range r.Grants {
		times, with := "", g.DetailsOrZero()
		if with.DueMS != 0 {
			times += " returns at " + clockText(with.DueMS)
		}
		if with.EndsMS != 0 {
			times += " ends at " + clockText(with.EndsMS)
		}
		if len(with.Slots) > 0 {
			times += " slots " + slotsText(with.Slots)
		}
		add(true, "[%s %d token %d at %s%s]", inGroup(g.Semaphore, with.Group), g.Count, g.Token, clockText(g.GrantedMS), times)
	}
	for _, c := range r.Completed {
		add(true, "[%s epoch %d granted %d token %d deleted %v]", c.Semaphore, c.Epoch, c.Granted, c.Token, c.Deleted)
	}
	add(why.Group != "", "group %s", why.Group)
	add(why.Used != 0, "used %d", why.Used)
	add(r.Asked != 0, "asked %d", r.Asked)
	add(why.Holding != 0, "has %d", why.Holding)
	add(r.Code != OK && r.Code != Waiting && why.Permits+why.Full+why.Available != 0, "of %d full %d available %d", why.Permits, why.Full, why.Available)
	add(r.QueueLength != 0, "queue %d", r.QueueLength)
	add(why.Level != nil && r.Code == Hierarchy, "level %s lowest %s", levelText(why.Level), levelText(why.LowestLevel))
	add(why.Reason != "", "%q", why.Reason)
	add(r.Trace != "", "trace %s", r.Trace)
	return strings.Join(parts, " ")
}

func effectText(e *Effect) string {
	parts, with := []string{e.Kind.String()}, e.DetailsOrZero()
	add := func(shown bool, format string, args ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(e.Semaphore != "", "%s", inGroup(e.Semaphore, with.Group))
	add(e.Item != "", "%s version %d", e.Item, e.Version)
	add(e.Session != 0, "s%d", e.Session)
	add(e.Place != 0, "place %d", e.Place)
	add(e.Token != 0, "token %d", e.Token)
	add(e.Count != 0, "count %d", e.Count)
	add(e.TTLMS != 0 || e.DeadlineMS != 0, "ttl %s until %s", clockText(e.TTLMS), clockText(e.DeadlineMS))
	add(e.OneShot, "one-shot")
	add(e.Mode == All, "all")
	add(e.Mode == Any, "any")
	add(e.Unowned, "unowned")
	add(e.Partial, "partial")
	for _, p := range with.Metadata {
		add(true, "%s=%s", p.Key, p.Value)
	}
	add(e.Kind == EffectCreated || e.Kind == EffectChanged, "permits %d offset %d level %s", with.Permits, with.Offset, levelText(with.Level))
	add(with.Settings != nil, "%s", settingsText(with.Settings))
	add(e.Kind == EffectGroupChanged, "limit %s", limitText(with.Limit))
	add(len(with.Slots) > 0, "slots %s", slotsText(with.Slots))
	add(with.DueMS == NeverMS, "never returns")
	add(with.DueMS != 0 && with.DueMS != NeverMS, "returns at %s", clockText(with.DueMS))
	add(e.Cause != CauseNone, "(%s)", e.Cause)
	add(with.Reason != "", "%q", with.Reason)
	add(e.Trace != "", "trace %s", e.Trace)
	return strings.Join(parts, " ")
}

func levelText(level *int32) string {
	if level == nil {
		return "none"
	}
	return strconv.Itoa(int(*level))
}

func clockText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// slotsText renders runs of slots: 0-3,7.
func slotsText(runs []SlotRun) string {
	parts := make([]string, len(runs))
	for i, run := range runs {
		parts[i] = strconv.Itoa(int(run.From))
		if run.Count > 1 {
			parts[i] += "-" + strconv.Itoa(int(run.From+run.Count-1))
		}
	}
	return strings.Join(parts, ",")
}

// inGroup renders a semaphore, with its group if there is one.
func inGroup(semaphore, group string) string {
	if group == "" {
		return semaphore
	}
	return semaphore + "@" + group
}

func limitText(limit int64) string {
	if limit == NoLimit {
		return "none"
	}
	return strconv.FormatInt(limit, 10)
}

func settingsText(s *Settings) string {
	if s == nil {
		return ""
	}
	var parts []string
	add := func(shown bool, format string, args ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.Groups != NoGroups, "groups=%s", s.Groups)
	add(s.Family, "family")
	add(s.PerGroup != 0, "per-group=%d", s.PerGroup)
	add(s.Paused != "", "paused=%s", s.Paused)
	add(s.MaxWaiting != 0, "max-waiting=%d", s.MaxWaiting)
	add(s.DropOldest, "drop-oldest")
	add(s.HeadStartMS != 0, "head-start=%s", clockText(s.HeadStartMS))
	add(s.WindowMS != 0, "window=%s", clockText(s.WindowMS))
	add(s.CooldownMS != 0, "cooldown=%s", clockText(s.CooldownMS))
	add(s.OnLostMS == Quarantine, "on-lost=quarantine")
	add(s.OnLostMS > 0, "on-lost=%s", clockText(s.OnLostMS))
	add(s.MaxHoldMS != 0, "max-hold=%s", clockText(s.MaxHoldMS))
	add(s.Slots, "slots")
	return strings.Join(parts, " ")
}

// groups lists the groups of a semaphore.
func (s *script) groups(name string) string {
	var b strings.Builder
	found, _, _ := s.m.Groups(name, "", false, 1000)
	for _, g := range found {
		fmt.Fprintf(&b, "%q limit %s used %d waiting %d", g.Group, limitText(g.Limit), g.Used, g.Waiting)
		if g.Own {
			b.WriteString(" own")
		}
		if g.Ahead != 0 {
			fmt.Fprintf(&b, " behind %d groups", g.Ahead)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// state lists every semaphore with its leases and waiting requests, and every session.
func (s *script) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "now %s\n", clockText(s.m.NowMS()))
	for _, v := range s.m.Semaphores("", "", 1000) {
		fmt.Fprintf(&b, "%s epoch %d permits %d offset %d held %d available %d level %s modified %d\n",
			v.Name, v.Epoch, v.Permits, v.Offset, v.Held, v.Available, levelText(v.Level), v.ModifiedIndex)
		if v.Settings != (Settings{}) {
			fmt.Fprintf(&b, "  %s groups %d", settingsText(&v.Settings), v.Groups)
			if v.Sweeping {
				b.WriteString(" sweeping")
			}
			b.WriteString("\n")
		}
		if v.Returns != 0 {
			fmt.Fprintf(&b, "  returning %d in %d records, next at %s\n", v.Returning, v.Returns, clockText(v.NextReturnMS))
		}
		for _, l := range s.m.Lost(v.Name, 0, 1000) {
			fmt.Fprintf(&b, "  lost by s%d at %s count %d token %d", l.Session, clockText(l.LostMS), l.Count, l.Token)
			if l.DueMS != NeverMS {
				fmt.Fprintf(&b, " until %s", clockText(l.DueMS))
			}
			if len(l.Slots) > 0 {
				fmt.Fprintf(&b, " slots %s", slotsText(l.Slots))
			}
			b.WriteString("\n")
		}
		for _, h := range s.m.Holders(v.Name, 0, 1000) {
			fmt.Fprintf(&b, "  held by s%d count %d token %d", h.Session, h.Count, h.Token)
			if h.DetailsOrZero().Group != "" {
				fmt.Fprintf(&b, " group %s", h.DetailsOrZero().Group)
			}
			if len(h.DetailsOrZero().Slots) > 0 {
				fmt.Fprintf(&b, " slots %s", slotsText(h.DetailsOrZero().Slots))
			}
			if h.DetailsOrZero().DueMS != 0 {
				fmt.Fprintf(&b, " spent until %s", clockText(h.DetailsOrZero().DueMS))
			}
			if h.Revoked {
				fmt.Fprintf(&b, " revoked %q", h.Reason)
			}
			b.WriteString("\n")
		}
		for _, w := range s.m.Waiters(v.Name, LinePlace{}, 1000) {
			fmt.Fprintf(&b, "  %d. s%d place %d %s %s", w.Position, w.Session, w.Place, listed(w.Wants), w.BlockedBy)
			if v.Settings.Groups != NoGroups {
				fmt.Fprintf(&b, ", in %q behind %d groups", w.Group, w.Ahead)
			}
			b.WriteString("\n")
		}
	}
	for _, v := range s.m.Sessions(0, 1000) {
		fmt.Fprintf(&b, "s%d ttl %s until %s leases %d waiting %d", v.ID, clockText(v.TTLMS), clockText(v.DeadlineMS), len(v.Leases), len(v.Waiting))
		if v.OneShot {
			b.WriteString(" one-shot")
		}
		if v.Owner != "" {
			fmt.Fprintf(&b, " of %s", v.Owner)
		}
		for _, p := range v.Metadata {
			fmt.Fprintf(&b, " %s=%s", p.Key, p.Value)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// items lists every item and how many tombstones there are.
func (s *script) items() string {
	var b strings.Builder
	fmt.Fprintf(&b, "now %s\n", clockText(s.m.NowMS()))
	for v := range s.m.ItemsAfter("", "") {
		fmt.Fprintf(&b, "%s %q flags %d locks %d created %d version %d", v.Name, v.Value, v.Flags, v.Locks, v.Created, v.Version)
		if v.Session != 0 {
			fmt.Fprintf(&b, " held by s%d", v.Session)
		}
		if v.DelayMS != 0 {
			fmt.Fprintf(&b, " delay until %s", clockText(v.DelayMS))
		}
		b.WriteString("\n")
	}
	counts := s.m.ItemCounts()
	fmt.Fprintf(&b, "%d items, %d shades, %d bytes, %d deletes in %d folders\n", counts.Items, counts.Shades, counts.Bytes, counts.Deletes, counts.Folders)
	return b.String()
}

// listed renders a list of a request: [{db 1} {pool 2 acme}].
func listed(wants []Want) string {
	parts := make([]string, len(wants))
	for i, w := range wants {
		parts[i] = strings.TrimSuffix(fmt.Sprintf("{%s %d %s", w.Semaphore, w.Count, w.Group), " ") + "}"
	}
	return fmt.Sprint(parts)
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// sceneCall is a call that a script makes in the background.
type sceneCall struct {
	answers chan sceneAnswer
	got     *sceneAnswer // once `reply` has received it
	began   time.Time
	stop    context.CancelFunc
}

// sceneAnswer is the reply to a call or a read.
type sceneAnswer struct {
	answer
	describe func() string
	contact  time.Duration // of a read, since the node has heard from the leader
	clocked  time.Duration // of a read, in cluster time since the read before
}

// prepare returns what a call does: "OP OPERANDS… [OPTION VALUE…]", or "read NAME [stale] [linearizable]
// [written|never] [current]". With written the read names the index of the last `do`, with never an index that does not
// come. With current the read must show the value of the last `up`, at its index or later.
func (s *scene) prepare(n *testNode, words []string) func(ctx context.Context) sceneAnswer {
	s.t.Helper()
	if words[0] != "read" {
		call := s.parseCall(n, words)
		return func(ctx context.Context) sceneAnswer {
			reply, err := n.Do(ctx, call)
			return sceneAnswer{answer: answer{*reply, err, time.Now()}, describe: func() string { return s.described(words[0], word(words, 1), *reply, err) }}
		}
	}
	c := calls.Consistency{Stale: slices.Contains(words, "stale"), Linearizable: slices.Contains(words, "linearizable")}
	if slices.Contains(words, "written") {
		c.MinIndex = s.written
	}
	if slices.Contains(words, "never") {
		c.MinIndex = 1 << 40
	}
	current := slices.Contains(words, "current")
	return func(ctx context.Context) sceneAnswer {
		at, err := n.Read(ctx, c)
		view, ok := stale(n, words[1])
		return sceneAnswer{answer: answer{calls.Reply{Index: at.Index, NowMS: at.NowMS}, err, time.Now()}, contact: at.LastContact, describe: func() string {
			text := fmt.Sprintf("%d available", view.Available)
			switch {
			case err != nil:
				return "refused: " + outcomeName(err)
			case !ok:
				text = "no semaphore"
			case at.Index < c.MinIndex:
				return "an index that is too small"
			case current && (view.Available != s.value || at.Index < s.written):
				text += fmt.Sprintf(" at index %d, not %d at %d", at.Index, s.value, s.written)
			case current:
				text = "current"
			}
			if at.Stale {
				text += ", stale"
			}
			return text
		}}
	}
}

// sceneOps are the commands that a call can carry. session and name are their operands;
// count is the number behind them, or 1.
var sceneOps = map[string]func(s *scene, n *testNode, o sceneOperands) fsm.Command{
	// create NAME [PERMITS], delete NAME
	"create": func(_ *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.CreateSemaphore{Name: o.words[0], Permits: o.number(1, 0)}
	},
	"delete": func(_ *scene, _ *testNode, o sceneOperands) fsm.Command { return fsm.DeleteSemaphore{Name: o.words[0]} },
	// up NAME [COUNT], down NAME [COUNT] [wait D]
	"up": func(_ *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.Up{Name: o.words[0], Count: o.number(1, 1)}
	},
	"down": func(_ *scene, n *testNode, o sceneOperands) fsm.Command {
		down := fsm.Down{Name: o.words[0], Count: o.number(1, 1), WaitMS: o.wait.Milliseconds()}
		if down.WaitMS > 0 {
			down.Session = n.DrawSession()
		}
		return down
	},
	// open SESSION TTL, end SESSION [reason TEXT], renew SESSION [TTL]
	"open": func(_ *scene, n *testNode, o sceneOperands) fsm.Command {
		return fsm.OpenSession{Session: n.DrawSession(), TTLMS: o.duration(1).Milliseconds()}
	},
	"end": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.EndSession{Session: s.sessions[o.words[0]], Operator: o.reason != "", Reason: o.reason}
	},
	"renew": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		renewal := fsm.Renewal{Session: s.sessions[o.words[0]], TTLMS: fsm.KeepTTL}
		if len(o.words) > 1 {
			renewal.TTLMS = o.duration(1).Milliseconds()
		}
		return fsm.Renew{Renewals: []fsm.Renewal{renewal}}
	},
	// acquire SESSION NAME [COUNT], release SESSION NAME, resize SESSION NAME COUNT
	"acquire": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		command := acquire(s.sessions[o.words[0]], o.words[1])
		command.Count = o.number(2, 1)
		return command
	},
	"release": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.Release{Session: s.sessions[o.words[0]], Name: o.words[1]}
	},
	"resize": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.ResizeLease{Session: s.sessions[o.words[0]], Name: o.words[1], Count: o.number(2, 1)}
	},
	// once SESSION NAME TTL [COUNT]: a one-shot acquire, whose session gets this name in the script; the
	// session "derived" has a derived id.
	"once": func(s *scene, n *testNode, o sceneOperands) fsm.Command {
		once := fsm.AcquireOnce{Name: o.words[1], Count: o.number(3, 1), TTLMS: o.duration(2).Milliseconds(),
			WaitMS: o.wait.Milliseconds(), Session: n.DrawSession()}
		if o.words[0] == "derived" {
			once.Session = fsm.DerivedSessions
		}
		s.sessions[o.words[0]] = once.Session
		return once
	},
	// list-add SESSION NAME COUNT, list-remove SESSION NAME, deliver SESSION [wait D]
	"list-add": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.ListAdd{Session: s.sessions[o.words[0]], Name: o.words[1], Count: o.number(2, 1)}
	},
	"list-remove": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.ListRemove{Session: s.sessions[o.words[0]], Name: o.words[1]}
	},
	"deliver": func(s *scene, _ *testNode, o sceneOperands) fsm.Command {
		return fsm.ListDeliver{Session: s.sessions[o.words[0]]}
	},
}

// sceneOperands are the words of a call behind its operation, without options.
type sceneOperands struct {
	s                         *scene
	words                     []string
	wait                      time.Duration
	key, owner, trace, reason string
	limits                    fsm.OwnerLimits
}

func (o sceneOperands) number(i int, otherwise int64) int64 {
	if i >= len(o.words) {
		return otherwise
	}
	number, err := strconv.ParseInt(o.words[i], 10, 64)
	o.s.must(err)
	return number
}

func (o sceneOperands) duration(i int) time.Duration {
	d, err := time.ParseDuration(o.words[i])
	o.s.must(err)
	return d
}

// sceneOptions are the words of a call that have one word behind them.
var sceneOptions = map[string]func(o *sceneOperands, value string){
	"wait": func(o *sceneOperands, value string) {
		var err error
		o.wait, err = time.ParseDuration(value)
		o.s.must(err)
	},
	"key":    func(o *sceneOperands, value string) { o.key = value },
	"owner":  func(o *sceneOperands, value string) { o.owner = value },
	"trace":  func(o *sceneOperands, value string) { o.trace = value },
	"reason": func(o *sceneOperands, value string) { o.reason = value },
	// limits SESSIONS/LEASES/WAITING of the owner
	"limits": func(o *sceneOperands, value string) {
		_, err := fmt.Sscanf(value, "%d/%d/%d", &o.limits.Sessions, &o.limits.Leases, &o.limits.Waiting)
		o.s.must(err)
	},
}

// parseCall reads "OP OPERANDS… [OPTION VALUE…]".
func (s *scene) parseCall(n *testNode, words []string) calls.Call {
	s.t.Helper()
	op, o := sceneOps[words[0]], sceneOperands{s: s}
	if op == nil {
		s.t.Fatalf("no operation %q", words[0])
	}
	for i := 1; i < len(words); i++ {
		if option := sceneOptions[words[i]]; option != nil {
			option(&o, words[i+1])
			i++
			continue
		}
		o.words = append(o.words, words[i])
	}
	return calls.Call{Command: op(s, n, o), Wait: o.wait, Key: o.key, Owner: o.owner, Trace: o.trace, Limits: o.limits}
}

// described is the reply to a call, as scripts show it. A place in a line has a letter in
// the order in which the script meets places.
func (s *scene) described(op, session string, r calls.Reply, err error) string {
	if err != nil {
		text := "refused: " + outcomeName(err)
		if r.Code == fsm.Waiting {
			text += ", after waiting at " + s.placeName(r.Place)
		}
		return text
	}
	if op == "renew" {
		r.Result = r.Each[0]
	}
	if op == "open" || op == "once" {
		s.sessions[session] = r.Session
	}
	parts := []string{r.Code.String()}
	add := func(when bool, format string, args ...any) {
		if when {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Code == fsm.OK && (op == "up" || op == "down"), "value %d", r.Value)
	add(len(r.Grants) > 0, "token")
	for _, grant := range r.Grants {
		parts = append(parts, strconv.FormatUint(grant.Token, 10))
	}
	if r.Place != 0 && (op == "acquire" || r.Code == fsm.Waiting) {
		add(r.Code == fsm.Waiting, "position %d", r.Position)
		parts = append(parts, "at "+s.placeName(r.Place))
	}
	for _, e := range r.Completed {
		parts = append(parts, fmt.Sprintf("%s %d", e.Semaphore, e.Granted))
		add(e.Deleted, "deleted")
	}
	add(r.Code == fsm.NothingReady && !r.Found, "empty list")
	add(r.Code == fsm.OK && op == "release" && !r.Found, "not found")
	add(r.Rule != fsm.RuleNone, "%v", r.Rule)
	add(r.Why().Reason != "", "reason %s", r.Why().Reason)
	add(r.Trace != "", "trace %s", r.Trace)
	add(r.Replayed, "replayed")
	add(r.Joined, "joined")
	return strings.Join(parts, " ")
}

// outcomeName is the error of package outcome that an error wraps, or the error itself.
func outcomeName(err error) string {
	for _, known := range []error{outcome.ErrNoLeader, outcome.ErrOutcomeUnknown, outcome.ErrDraining, outcome.ErrStorageFull, outcome.ErrSplitState,
		outcome.ErrOverloaded, outcome.ErrNotTried, outcome.ErrNotApplied, outcome.ErrBehind, outcome.ErrRestoring, outcome.ErrBackupRefused} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

func (s *scene) placeName(place uint64) string {
	if s.places[place] == "" {
		s.places[place] = "place " + string(rune('A'+len(s.places)))
	}
	return s.places[place]
}

// within reads "took MIN..MAX", "waited MIN..MAX", "waiting MIN..MAX" and "contact MIN..MAX" and "clocked MIN..MAX" and reports what is not so.
func (s *scene) within(words []string, took time.Duration, r sceneAnswer) (lines []string) {
	for i := 0; i+1 < len(words); i += 2 {
		measured, ok := map[string]time.Duration{"took": took, "waited": time.Duration(r.WaitedMS) * time.Millisecond,
			"waiting": time.Duration(r.WaitingMS) * time.Millisecond, "contact": r.contact, "clocked": r.clocked}[words[i]]
		low, high, pair := strings.Cut(words[i+1], "..")
		if !ok || !pair {
			s.t.Fatalf("no bounds: %q", words)
		}
		from, err := time.ParseDuration(low)
		s.must(err)
		to, err := time.ParseDuration(high)
		s.must(err)
		if measured < from || measured > to {
			lines = append(lines, fmt.Sprintf("%s %v, which is not %s", words[i], measured, words[i+1]))
		}
	}
	return lines
}

// bounds splits the bounds of a reply from the words before them.
func bounds(words []string) (before, limits []string) {
	for i, word := range words {
		if i+1 < len(words) && strings.Contains(words[i+1], "..") {
			return words[:i], slices.Concat([]string{word}, words[i+1:])
		}
	}
	return words, nil
}

// sceneCallCommands are the commands of scripts that make calls.
var sceneCallCommands = map[string]func(s *scene, t *testing.T, words []string) []string{
	// do NODE OP… [took|waited|waiting MIN..MAX]: a call, and its reply.
	"do": func(s *scene, t *testing.T, words []string) []string {
		words, limits := bounds(words)
		n, began := s.node(words[0]), time.Now()
		got := s.prepare(n, words[1:])(t.Context())
		if words[1] != "read" {
			s.written = got.Index
		}
		if words[1] == "up" {
			s.value = got.Value
		}
		if got.NowMS != 0 {
			s.nowMS, got.clocked = got.NowMS, time.Duration(got.NowMS-s.nowMS)*time.Millisecond
		}
		return append([]string{got.describe()}, s.within(limits, got.at.Sub(began), got)...)
	},
	// every D COUNT NODE OP…: a call at this pace, so many times, and the last reply.
	"every": func(s *scene, t *testing.T, words []string) (lines []string) {
		pace, err := time.ParseDuration(words[0])
		s.must(err)
		count, err := strconv.Atoi(words[1])
		s.must(err)
		for range count {
			time.Sleep(pace) // virtual
			lines = []string{s.prepare(s.node(words[2]), words[3:])(t.Context()).describe()}
		}
		return lines
	},
	// count NAME MIN..MAX through N: the permits that are available, by a linearizable read.
	"count": func(s *scene, _ *testing.T, words []string) []string {
		words, n := s.through(words)
		view, _ := s.read(n, words[0])
		return s.between("available", words[1:], view.Available)
	},
	// list NODE OP… ; OP…: several calls at once, and their replies.
	"list": func(s *scene, t *testing.T, words []string) (lines []string) {
		var list []calls.Call
		var parts, limits [][]string
		n := s.node(words[0])
		for part := range strings.SplitSeq(strings.Join(words[1:], " "), " ; ") {
			call, bounded := bounds(strings.Fields(part))
			parts, limits, list = append(parts, call), append(limits, bounded), append(list, s.parseCall(n, call))
		}
		began := time.Now()
		replies, errs := n.DoMany(t.Context(), list)
		took := time.Since(began)
		for i, part := range parts {
			lines = append(lines, s.described(part[0], word(part, 1), replies[i], errs[i]))
			lines = append(lines, s.within(limits[i], took, sceneAnswer{answer: answer{Reply: replies[i]}})...)
		}
		return lines
	},
	// call LABEL NODE OP…: a call in the background, or several, LABEL*N, with the labels LABEL1 to LABELN.
	"call": func(s *scene, t *testing.T, words []string) []string {
		n := s.node(words[1])
		label, times, several := strings.Cut(words[0], "*")
		if count, err := strconv.Atoi(times); several && err == nil {
			for i := range count {
				s.begins(t, fmt.Sprint(label, i+1), n, words[2:])
			}
			return nil
		}
		s.begins(t, label, n, words[2:])
		return nil
	},
	// reply LABEL… [took|waited|waiting MIN..MAX]: waits for the reply to a call. `took` counts from the last `clock`
	// or the beginning of the call, whichever is later. LABEL*N are several, whose
	// replies differ by numbers alone.
	"reply": func(s *scene, _ *testing.T, words []string) (lines []string) {
		labels, limits := bounds(words)
		for _, label := range labels {
			name, times, several := strings.Cut(label, "*")
			count, err := strconv.Atoi(times)
			if !several || err != nil {
				lines = append(lines, s.reply(label, limits)...)
				continue
			}
			all := map[string]bool{}
			for i := range count {
				for _, text := range s.reply(fmt.Sprint(name, i+1), limits) {
					_, text, _ = strings.Cut(text, ": ")
					all[numbers.ReplaceAllString(text, "N")] = true
				}
			}
			for _, text := range slices.Sorted(maps.Keys(all)) {
				lines = append(lines, label+": "+text)
			}
		}
		return lines
	},
	// either LABEL…: the replies to calls of which any may be the first, without their labels.
	"either": func(s *scene, _ *testing.T, words []string) (lines []string) {
		for _, label := range words {
			_, text, _ := strings.Cut(s.reply(label, nil)[0], ": ")
			lines = append(lines, text)
		}
		return slices.Sorted(slices.Values(lines))
	},
	// pending LABEL…: which calls have no reply yet.
	"pending": func(s *scene, _ *testing.T, words []string) (lines []string) {
		synctest.Wait()
		for _, label := range words {
			lines = append(lines, fmt.Sprintf("%s is under way: %t", label, s.calls[label].got == nil && len(s.calls[label].answers) == 0))
		}
		return lines
	},
	// hang-up LABEL: the caller gives its call up.
	"hang-up": func(s *scene, _ *testing.T, words []string) []string { s.calls[words[0]].stop(); return nil },
	// clock: what `took` of a reply, and of `passed`, counts from.
	"clock": func(s *scene, _ *testing.T, _ []string) []string { s.clock = time.Now(); return nil },
	// passed MIN..MAX: whether so much time is gone since `clock`.
	"passed": func(s *scene, _ *testing.T, words []string) []string {
		return s.within([]string{"took", words[0]}, time.Since(s.clock), sceneAnswer{})
	},
	// taken NAME SESSION: a semaphore whose one permit a session of an hour holds.
	"taken": func(s *scene, _ *testing.T, words []string) []string {
		s.sessions[words[1]] = taken(s.nodes, words[0])
		return nil
	},
	// listed N SESSION NAME…: semaphores without permits on the wait list of a session, which are opened through the node.
	"listed": func(s *scene, _ *testing.T, words []string) []string {
		s.sessions[words[1]] = listed(s.nodes, s.node(words[0]), words[2:]...)
		return nil
	},
	// drain N: the node takes no further call, and ends its waits.
	"drain": func(s *scene, _ *testing.T, words []string) []string { s.node(words[0]).Drain(); return nil },
	// view NAME through N: a semaphore, by a linearizable read.
	"view": func(s *scene, t *testing.T, words []string) []string {
		words, limits := bounds(words)
		words, n := s.through(words)
		began := time.Now()
		if _, err := n.Read(t.Context(), calls.Consistency{}); err != nil {
			return append([]string{"refused: " + outcomeName(err)}, s.within(limits, time.Since(began), sceneAnswer{})...)
		}
		view, _ := stale(n, words[0])
		return append([]string{fmt.Sprintf("%s: %d available, %d held, %d waiting", words[0], view.Available, view.Held, view.Waiters)},
			s.within(limits, time.Since(began), sceneAnswer{})...)
	},
	// watch NAME through N: a reader that waits for the next change of a semaphore; woken: whether it has come.
	"watch": func(s *scene, _ *testing.T, words []string) []string {
		words, n := s.through(words)
		s.changed, _ = n.Changed(words[0])
		return nil
	},
	"woken": func(s *scene, _ *testing.T, _ []string) []string {
		synctest.Wait()
		select {
		case <-s.changed:
			return []string{"woken"}
		default:
			return []string{"not woken"}
		}
	},
	// cut FROM TO, heal FROM TO, partition A B, reset A B: the links between two nodes.
	"cut":       func(s *scene, _ *testing.T, words []string) []string { s.net.Cut(words[0], words[1]); return nil },
	"heal":      func(s *scene, _ *testing.T, words []string) []string { s.net.Heal(words[0], words[1]); return nil },
	"partition": func(s *scene, _ *testing.T, words []string) []string { s.net.Partition(words[0], words[1]); return nil },
	"reset":     func(s *scene, _ *testing.T, words []string) []string { s.net.Reset(words[0], words[1]); return nil },
	// delay FROM TO D: the time of each message from a node to the other.
	"delay": func(s *scene, _ *testing.T, words []string) []string {
		d, err := time.ParseDuration(words[2])
		s.must(err)
		s.net.Delay(words[0], words[1], d)
		return nil
	},
	// drawn N: how many commands the node has numbered since the last `drawn`.
	"drawn": func(s *scene, _ *testing.T, words []string) []string {
		before := s.drawn
		s.drawn = s.node(words[0]).requests.Build(fsm.Up{}, fsm.Envelope{}, lead.ClassSingle, nil).ID.Sequence
		if before == 0 {
			return nil
		}
		return []string{fmt.Sprintf("%d commands", s.drawn-before-1)}
	},
}

// acquire is a session's acquire of one permit that keeps the session's ttl.
func acquire(session uint64, name string) fsm.Acquire {
	return fsm.Acquire{Session: session, Name: name, Count: 1, TTLMS: fsm.KeepTTL}
}

// taken makes a semaphore of one permit that a session holds, and returns it.
func taken(c *nodes, name string) (holder uint64) {
	c.t.Helper()
	c.semaphore(name, 1)
	holder = c.open(c.leader(), time.Hour)
	c.do(c.leader(), acquire(holder, name), fsm.OK)
	return holder
}

// listed opens a session on a node, with semaphores of no permits on its wait list.
func listed(c *nodes, n *testNode, names ...string) (session uint64) {
	c.t.Helper()
	session = c.open(n, 10*time.Hour)
	for _, name := range names {
		c.do(n, fsm.CreateSemaphore{Name: name}, fsm.OK)
		c.do(n, fsm.ListAdd{Session: session, Name: name, Count: 5}, fsm.OK)
	}
	return session
}

// numbers are what differs between the replies to several calls.
var numbers = regexp.MustCompile(`\d+`)

// word is the word at i, or "".
func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return ""
}

// begins makes a call in the background.
func (s *scene) begins(t *testing.T, label string, n *testNode, words []string) {
	ctx, stop := context.WithCancel(t.Context())
	c := &sceneCall{answers: make(chan sceneAnswer, 1), began: time.Now(), stop: stop}
	s.calls[label] = c
	perform := s.prepare(n, words)
	go func() { c.answers <- perform(ctx) }()
	synctest.Wait() // it is on its way, before the next command
}

// reply waits for the reply to a call in the background.
func (s *scene) reply(label string, limits []string) []string {
	c := s.calls[label]
	if c.got == nil {
		got := <-c.answers
		c.got = &got
	}
	since := c.began
	if s.clock.After(since) {
		since = s.clock
	}
	return append([]string{label + ": " + c.got.describe()}, s.within(limits, c.got.at.Sub(since), *c.got)...)
}

// sceneCallConditions are conditions about calls.
var sceneCallConditions = map[string]func(s *scene, n *testNode, words []string) bool{
	// N waiters NAME COUNT: by a linearizable read.
	"waiters": func(s *scene, n *testNode, words []string) bool {
		view, _ := s.read(n, words[0])
		return fmt.Sprint(view.Waiters) == words[1]
	},
	// N available NAME COUNT: in the node's own state.
	"available": func(_ *scene, n *testNode, words []string) bool {
		view, ok := stale(n, words[0])
		return ok && fmt.Sprint(view.Available) == words[1]
	},
	// N expired SESSION: by a linearizable read, which shows no session after its deadline.
	"expired": func(s *scene, n *testNode, words []string) bool {
		at, err := n.Read(s.t.Context(), calls.Consistency{})
		s.must(err)
		lives := false
		n.View(func(m *fsm.Machine) {
			view, ok := m.Session(s.sessions[words[0]])
			if lives = ok; ok && view.DeadlineMS <= at.NowMS {
				s.t.Errorf("a session is shown %d ms after its deadline", at.NowMS-view.DeadlineMS)
			}
		})
		return !lives
	},
	// N sent COUNT, N held COUNT: of the commands under way.
	"sent": func(_ *scene, n *testNode, words []string) bool {
		return fmt.Sprint(n.requests.Count(requests.Sent)) == words[0]
	},
	"holds-back": func(_ *scene, n *testNode, words []string) bool {
		return fmt.Sprint(n.requests.Count(requests.Held)) == words[0]
	},
	// N waits COUNT: the calls that wait on the node.
	"waits": func(_ *scene, n *testNode, words []string) bool {
		return fmt.Sprint(n.requests.OpenWaits()) == words[0]
	},
	"jumped": func(_ *scene, n *testNode, _ []string) bool { return n.requests.JumpedOver(1) },
	"leaderless": func(_ *scene, n *testNode, _ []string) bool {
		address, _ := n.raft().LeaderWithID()
		return address == "" && n.established() == nil
	},
	// N listening SESSION COUNT: the calls that wait for a list of the session, of which no attempt is under way.
	"listening": func(s *scene, n *testNode, words []string) bool {
		if fmt.Sprint(n.replica.Listeners(s.sessions[words[0]])) != words[1] {
			return false
		}
		time.Sleep(100 * time.Millisecond) // virtual: the first attempt is over
		synctest.Wait()
		return true
	},
}

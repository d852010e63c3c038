package cluster

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// TestScenes runs testdata/scenes/*.txt: what whole nodes do together, in virtual time. A
// directive is one command a line (sceneCommands); what they print is the expected output,
// which `go test ./cluster -run TestScenes -rewrite` writes anew. A command that waits for a
// condition fails the test if it does not come true within a minute.
func TestScenes(t *testing.T) {
	paths, err := filepath.Glob("testdata/scenes/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenes: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scene{}
				defer s.end()
				datadriven.RunTest(t, path, s.run)
			})
		})
	}
}

// scene is a cluster that a script plays with, or two of them.
type scene struct {
	*lifeNodes
	elsewhere *lifeNodes              // another cluster with the same ids and addresses on another network
	twin      *testNode               // another process with a node's id, at another address
	aside     map[string]*store.Store // folders that were set aside
	kinds     map[string]int          // how many labels there are of a kind
	labels    map[string]string       // of the ids of clusters and folders, which differ from run to run
	marks     [2]uint64               // the last index and the configuration's index, as `mark` saw them
	token     uint64                  // the last that `tokens` got
	file      []byte                  // of `backup`
	session   uint64                  // as `session` opened it
	hashes    flips
	term      uint64 // as `term` saw it last

	campaigns int // as `campaigns` saw them last

	line  string // that runs
	value int64  // of the last `do … up`

	first *testNode // n1, or as `first` saw it

	withheld atomic.Pointer[string] // the node that gets heartbeats, but no entries

	calls    map[string]*sceneCall // in the background, by their labels
	sessions map[string]uint64     // their ids, by the names of the script
	places   map[uint64]string     // names of places in lines
	clock    time.Time             // as `clock` set it
	drawn    uint64                // as `drawn` saw it last
	written  uint64                // the index of the last `do`

	disks   map[string]*watchdogDisk
	hung    map[string]*hungLogs // in a cluster that is "hanging"
	entries uint64               // as `entries` saw them last
	nowMS   int64                // as `now` saw it last
	changed <-chan struct{}      // of `watch`

	refusals float64   // as `refusals` counted them
	restored uint64    // the index of the last `restore`
	stranger *testNode // as `stranger` started it
}

func (s *scene) run(t *testing.T, d *datadriven.TestData) string {
	first := d.Cmd
	for _, arg := range d.CmdArgs {
		first += " " + arg.String()
	}
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s", d.Pos, s.line)
		}
	}()
	printed := s.play(t, strings.Split(first+"\n"+d.Input, "\n"))
	for _, c := range []*lifeNodes{s.lifeNodes, s.elsewhere} {
		for _, n := range c.having() {
			s.label(n)
		}
	}
	text := sourcePort.ReplaceAllString(printed, "")
	for id, label := range s.labels {
		text = strings.ReplaceAll(text, id, label)
	}
	return refusingMember.ReplaceAllString(text, "refused by a member")
}

// play runs the lines of a directive, and returns what they print. The lines from "repeat COUNT" to "end" run so
// many times: each time they print the same, apart from numbers, and it is shown once.
func (s *scene) play(t *testing.T, lines []string) string {
	var out strings.Builder
	for i := 0; i < len(lines); i++ {
		s.line = lines[i]
		words := strings.Fields(s.line)
		switch command := sceneCommands[word(words, 0)]; {
		case len(words) == 0:
		case words[0] == "repeat":
			length := slices.Index(lines[i+1:], "end")
			count, err := strconv.Atoi(words[1])
			if err != nil || length < 0 {
				t.Fatalf("no count, or no end: %q", s.line)
			}
			printed := map[string]bool{}
			for range count {
				printed[numbers.ReplaceAllString(s.play(t, lines[i+1:i+1+length]), "N")] = true
			}
			out.WriteString(strings.Join(slices.Sorted(maps.Keys(printed)), "or\n"))
			i += 1 + length
		case command != nil:
			for _, text := range command(s, t, words[1:]) {
				fmt.Fprintln(&out, text)
			}
		default:
			s.wait(t, words)
		}
	}
	return out.String()
}

// sourcePort and refusingMember differ from run to run.
var (
	sourcePort     = regexp.MustCompile(` \(from [^)]*\)`)
	refusingMember = regexp.MustCompile(`refused by node "[^"]*" of cluster <[^>]*> with folder <[^>]*> at [^:]*:8711`)
)

// newCluster makes so many nodes, which do not run yet.
func (s *scene) newCluster(t *testing.T, words []string) {
	count, err := strconv.Atoi(words[0])
	must(t, err)
	s.lifeNodes = newLifeNodes(t, count)
	s.first = s.all[0]
	s.bolt = slices.Contains(words, "on-disk")
	s.hashes = newFlips(s.lifeNodes)
	s.disks = watchdogDisks(s.lifeNodes)
	if slices.Contains(words, "certified") {
		withCertificates(s.lifeNodes)
	}
	if slices.Contains(words, "hanging") {
		s.hung = hangingLogs(s.lifeNodes)
	}
	s.setups = append(s.setups, func(config *Config) {
		config.fault = func(peer raft.ServerID, request any) error {
			entries, ok := request.(*raft.AppendEntriesRequest)
			if from := s.withheld.Load(); ok && from != nil && string(peer) == *from && len(entries.Entries) > 0 {
				return errors.New("withheld")
			}
			return nil
		}
	})
}

func (s *scene) lead(n *testNode) {
	s.ready(s.list(nil)...)
	if leader := s.leader(); leader != n {
		s.must(leader.TransferLeadership(s.t.Context(), n.id))
		s.until(n.id+" leads", func() bool { return n.established() != nil })
		s.ready(s.list(nil)...)
	}
}

// end stops all nodes, and forgets them.
func (s *scene) end() {
	for _, c := range s.calls {
		c.stop()
	}
	if s.twin != nil {
		identityEnd(s.lifeNodes, s.twin)
	}
	for _, kept := range s.aside {
		s.must(kept.Close())
	}
	for _, c := range []*lifeNodes{s.lifeNodes, s.elsewhere} {
		if c != nil {
			c.stop()
		}
	}
	*s = scene{labels: map[string]string{}, kinds: map[string]int{}, aside: map[string]*store.Store{},
		calls: map[string]*sceneCall{}, sessions: map[string]uint64{}, places: map[uint64]string{}}
}

// having returns the nodes that have a folder.
func (c *lifeNodes) having() (list []*testNode) {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.all), func(n *testNode) bool { return n.store == nil })
}

// label names the ids of a node's cluster and folder in what is printed.
func (s *scene) label(n *testNode) {
	for _, l := range [][2]string{{n.store.ClusterID(), "cluster"}, {n.store.FolderID().String(), "folder of " + n.id}} {
		if id, kind := l[0], l[1]; id != "" && s.labels[id] == "" {
			s.kinds[kind]++
			s.labels[id] = fmt.Sprintf("<%s %d>", kind, s.kinds[kind])
		}
	}
}

// node returns the node with an id, or in the role that a script names.
func (s *scene) node(id string) *testNode {
	switch id {
	case "twin":
		return s.twin
	case "leader":
		return s.leader()
	case "first":
		return s.first
	case "next": // whichever node leads in place of first
		return s.leader(s.first)
	}
	i := slices.IndexFunc(s.all, func(n *testNode) bool { return n.id == id })
	if i < 0 {
		s.t.Fatalf("no node %q", id)
	}
	return s.all[i]
}

// list returns the nodes with these ids; without any, all that run.
func (s *scene) list(ids []string) (list []*testNode) {
	for _, id := range ids {
		list = append(list, s.node(id))
	}
	for _, n := range s.all {
		if len(ids) == 0 && n.up {
			list = append(list, n)
		}
	}
	return list
}

// through splits the words before "through" from the node behind it, which is the leader without
// that word.
func (s *scene) through(words []string) ([]string, *testNode) {
	if i := slices.Index(words, "through"); i >= 0 {
		return words[:i], s.node(words[i+1])
	}
	return words, s.leader()
}

// outcomeOf is what became of a change, which succeeds within a limit or is refused within
// probe.CallTimeout.
func (s *scene) outcomeOf(limit time.Duration, change func() error) []string {
	began := time.Now()
	err := change()
	switch took := time.Since(began); {
	case err == nil && took > limit, took > probe.CallTimeout:
		return []string{fmt.Sprintf("only after %v: %v", took, err)}
	case err != nil:
		return []string{"refused: " + err.Error()}
	}
	return []string{"ok"}
}

// sceneConditions are what `until`, `never` and `show` say of a node. words follow the name.
var sceneConditions = map[string]func(s *scene, n *testNode, words []string) bool{
	"ready":   func(_ *scene, n *testNode, _ []string) bool { return n.Ready() },
	"leading": func(_ *scene, n *testNode, _ []string) bool { return n.established() != nil },
	"raft":    func(_ *scene, n *testNode, _ []string) bool { return n.raft() != nil },
	"stopped": func(s *scene, n *testNode, _ []string) bool { return s.fatal(n.id) != nil },
	"missing": func(s *scene, n *testNode, words []string) bool { return n.members().Seen()[words[0]].Failing },
	"reaching": func(s *scene, n *testNode, words []string) bool {
		return n.running.Load().transport.Reaches(s.t.Context(), raft.ServerID(words[0]))
	},
	"failing": func(s *scene, n *testNode, words []string) bool {
		check := s.check(n, words[0])
		return !check.OK && strings.Contains(check.Detail, strings.Join(words[1:], " "))
	},
	"passing": func(s *scene, n *testNode, words []string) bool { return s.check(n, words[0]).OK },
	"lagging": func(s *scene, n *testNode, words []string) bool { return sceneLag(n, words) >= 25 },
	"even":    func(s *scene, n *testNode, words []string) bool { return sceneLag(n, words) == 0 },
	"applied": func(s *scene, n *testNode, words []string) bool {
		return n.replica.Index() >= s.node(words[0]).raft().CommitIndex()
	},
	"behind":   func(_ *scene, n *testNode, _ []string) bool { return sceneLag(n, []string{n.id}) > 0 },
	"electing": func(_ *scene, n *testNode, _ []string) bool { return n.raft().State() == raft.Leader },
	"gaining":  func(s *scene, n *testNode, _ []string) bool { return n.raft().LastIndex() != s.marks[0] },
	"reconfigured": func(s *scene, n *testNode, _ []string) bool {
		index, _ := n.joining.Configuration()
		return index != s.marks[1]
	},
	"refusing": func(s *scene, n *testNode, words []string) bool {
		return refusedCount(s.t, n.joining.Port(), words[0]) > 0
	},
	// N restored NAME: the semaphore has not changed since the last restore.
	"restored": func(s *scene, n *testNode, words []string) bool {
		view, _ := stale(n, words[0])
		return view.ModifiedIndex == s.restored
	},
	// N forgets INDEX: its history of events does not go back so far.
	"forgets": func(_ *scene, n *testNode, words []string) bool {
		index, err := strconv.ParseUint(words[0], 10, 64)
		_, gone := n.EventsAfter(replica.EventID{Index: index})
		return err == nil && errors.Is(gone, outcome.ErrHistoryGone)
	},
	"refused-more": func(s *scene, _ *testNode, words []string) bool { return s.refused(words[0]) > s.refusals },
	// N knows MEMBER: the member's folder has a vote.
	"knows": func(s *scene, n *testNode, words []string) bool {
		server, _ := membership.Find(n.joining.Servers(), words[0])
		want := peer.MarkAddress(words[0]+":8711", peer.ID(s.node(words[0]).store.FolderID()))
		return server.Suffrage == raft.Voter && server.Address == want
	},
	// N levelled: its level is this program's, and it knows that all members know the level.
	"levelled": func(s *scene, n *testNode, _ []string) bool {
		status := n.Status()
		return status.Level == fsm.FeatureLevel && len(status.Members) == len(s.all) &&
			!slices.ContainsFunc(status.Members, func(m Member) bool { return m.Knows != fsm.FeatureLevel })
	},
	"having": func(_ *scene, n *testNode, words []string) bool { _, ok := stale(n, words[0]); return ok },
	"holding": func(s *scene, n *testNode, _ []string) (ok bool) {
		n.View(func(m *fsm.Machine) { _, ok = m.Session(s.session) })
		return ok
	},
	"restoring": func(_ *scene, n *testNode, _ []string) bool { return n.store.RestoredTerm() != 0 },
	"prompt": func(_ *scene, n *testNode, _ []string) bool {
		return n.raft().ReloadableConfig().ElectionTimeout == raftlib.Tick
	},
	"voter":    func(s *scene, n *testNode, _ []string) bool { return s.seen(n.id) == "voter" },
	"nonvoter": func(s *scene, n *testNode, _ []string) bool { return s.seen(n.id) == "nonvoter" },
	"member":   func(s *scene, n *testNode, _ []string) bool { return s.seen(n.id) != "none" },
}

// seen is a member's suffrage as the leader sees it, or "unknown" without a leader.
func (s *scene) seen(id string) string {
	for _, n := range s.all {
		if n.up && n.id != id && n.established() != nil {
			return s.suffrage(n, id)
		}
	}
	return "unknown"
}

func sceneLag(n *testNode, words []string) uint64 {
	for _, m := range n.Status().Members {
		if m.ID == words[0] {
			return m.Lag
		}
	}
	return 0
}

// condition evaluates "NODE [not] CONDITION WORDS…", one or several with "or" between them.
func (s *scene) condition(words []string) bool {
	if i := slices.Index(words, "or"); i >= 0 {
		return s.condition(words[:i]) || s.condition(words[i+1:])
	}
	n, want, rest := s.node(words[0]), true, words[1:]
	if rest[0] == "not" {
		want, rest = false, rest[1:]
	}
	condition := sceneConditions[rest[0]]
	if condition == nil {
		s.t.Fatalf("no condition %q", rest[0])
	}
	return condition(s, n, rest[1:]) == want
}

// wait is a line without a command: a condition that has to come true.
func (s *scene) wait(t *testing.T, words []string) {
	if words[0] != "until" {
		t.Fatalf("no command %q", words[0])
	}
	s.until(strings.Join(words[1:], " "), func() bool { return s.condition(words[1:]) })
	synctest.Wait() // all that the node does then is done
}

// sceneCommands are the commands of scripts, and what each prints.
var sceneCommands = map[string]func(s *scene, t *testing.T, words []string) []string{
	// cluster N [on-disk] [hanging] [certified]: another scene, of N nodes that do not run.
	"cluster": func(s *scene, t *testing.T, words []string) []string {
		s.end()
		s.newCluster(t, words)
		return nil
	},
	// formed N [on-disk] [hanging] [certified]: another scene, of N nodes that run, which n1 leads.
	"formed": func(s *scene, t *testing.T, words []string) []string {
		s.end()
		s.newCluster(t, words)
		s.begin(s.all...)
		s.lead(s.all[0])
		return nil
	},
	// queue N, multiplier N: the size of the nodes' queues and the factor of Raft's time-outs, from the next start on.
	"queue": func(s *scene, t *testing.T, words []string) []string {
		size, err := strconv.Atoi(words[0])
		s.must(err)
		s.setups = append(s.setups, func(config *Config) { config.QueueSize = size })
		return nil
	},
	"multiplier": func(s *scene, t *testing.T, words []string) []string {
		factor, err := strconv.Atoi(words[0])
		s.must(err)
		s.setups = append(s.setups, func(config *Config) { config.RaftMultiplier = factor })
		return nil
	},
	// peers N…: the list that nodes start with from here on, without any all of them.
	"peers": func(s *scene, _ *testing.T, words []string) []string {
		s.peers = nil
		for _, id := range words {
			s.peers = append(s.peers, Peer{ID: id, Address: id + ":8711"})
		}
		return nil
	},
	// start N…: in this order, on the folders that they have; without any, all.
	"start": func(s *scene, _ *testing.T, words []string) []string {
		if len(words) == 0 {
			s.begin(slices.DeleteFunc(slices.Clone(s.all), func(n *testNode) bool { return n.up })...)
		}
		for _, id := range words {
			if !slices.ContainsFunc(s.all, func(n *testNode) bool { return n.id == id }) {
				joiner(s.lifeNodes, id)
			}
			s.begin(s.node(id))
		}
		return nil
	},
	"kill": func(s *scene, _ *testing.T, words []string) []string {
		for _, n := range s.list(words) {
			s.kill(n)
		}
		return nil
	},
	// wipe N…: kills nodes that run, and takes their folders away.
	"wipe": func(s *scene, _ *testing.T, words []string) []string {
		for _, n := range s.list(words) {
			s.label(n)
			s.wipe(n)
		}
		return nil
	},
	"close": func(s *scene, t *testing.T, words []string) []string {
		return s.outcomeOf(time.Second, func() error { _, err := s.closeTook(s.node(words[0])); return err })
	},
	"cut-off": func(s *scene, _ *testing.T, words []string) []string { s.net.Isolate(s.node(words[0]).id); return nil },
	"reach":   func(s *scene, _ *testing.T, words []string) []string { s.net.Rejoin(s.node(words[0]).id); return nil },
	// withhold [N]: the node gets heartbeats, but no entries; without one, each node gets all.
	"withhold": func(s *scene, _ *testing.T, words []string) []string {
		from := strings.Join(words, "")
		s.withheld.Store(&from)
		return nil
	},
	// sleep D: virtual time passes.
	"sleep": func(_ *scene, t *testing.T, words []string) []string {
		d, err := time.ParseDuration(words[0])
		must(t, err)
		time.Sleep(d) // virtual
		return nil
	},
	// ready [N…]: waits until the nodes are ready.
	"ready": func(s *scene, _ *testing.T, words []string) []string { s.ready(s.list(words)...); return nil },
	// lead N: waits until all nodes that run are ready, and makes N the leader.
	"lead": func(s *scene, _ *testing.T, words []string) []string { s.lead(s.node(words[0])); return nil },
	// first: the node that leads is called "first" from here on, and not n1.
	"first": func(s *scene, _ *testing.T, _ []string) []string { s.first = s.leader(); return nil },
	// leader: which node leads.
	"leader": func(s *scene, _ *testing.T, _ []string) []string { return []string{s.leader().id + " leads"} },
	// voters N… [on N…]: waits until the nodes, or all that run, see exactly these members vote.
	"voters": func(s *scene, _ *testing.T, words []string) []string {
		on := s.list(nil)
		if i := slices.Index(words, "on"); i >= 0 {
			words, on = words[:i], s.list(words[i+1:])
		}
		s.voting(words, on...)
		return nil
	},
	// never CONDITION: it is not true at any time of the next half minute.
	"never": func(s *scene, _ *testing.T, words []string) []string {
		s.never(strings.Join(words, " "), func() bool { return s.condition(words) })
		return nil
	},
	// show CONDITION: whether it is true.
	"show": func(s *scene, _ *testing.T, words []string) []string {
		return []string{fmt.Sprintf("%s: %t", strings.Join(words, " "), s.condition(words))}
	},
	// check NODE NAME: a check of the node, in its words.
	"check": func(s *scene, _ *testing.T, words []string) []string {
		check := s.check(s.node(words[0]), words[1])
		text := fmt.Sprintf("%s %s: %t: %s", words[0], words[1], check.OK, check.Detail)
		if check.Moved != nil {
			text += ", moved to " + check.Moved.Address
		}
		return []string{text}
	},
	// fatal: which nodes must not go on, and why.
	"fatal": func(s *scene, _ *testing.T, _ []string) (lines []string) {
		for _, n := range s.all {
			if err := s.fatal(n.id); err != nil {
				lines = append(lines, fmt.Sprintf("%s: %v", n.id, err))
			}
		}
		return lines
	},
	// status N: the members as the node sees them.
	"status": func(s *scene, _ *testing.T, words []string) []string {
		status := s.node(words[0]).Status()
		lines := []string{fmt.Sprintf("%s: leader %q", words[0], status.Leader)}
		for _, m := range status.Members {
			lines = append(lines, fmt.Sprintf("%s at %s: %s, heard %t", m.ID, m.Address, m.State, m.LastContact >= 0))
		}
		return lines
	},
	// logs N MIN MAX TEXT: whether so many lines of the node's log have the text.
	"logs": func(s *scene, t *testing.T, words []string) []string {
		fewest, err := strconv.Atoi(words[1])
		largest, err2 := strconv.Atoi(words[2])
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		text := strings.Join(words[3:], " ")
		if n := len(s.logs[words[0]].Lines(text)); n < fewest || n > largest {
			return []string{fmt.Sprintf("%s has logged %d times %q", words[0], n, text)}
		}
		return nil
	},
	// campaigns N: whether the node has campaigned since the last `campaigns`.
	"campaigns": func(s *scene, _ *testing.T, words []string) []string {
		before := s.campaigns
		s.campaigns = len(s.logs[words[0]].Lines("entering candidate state"))
		return []string{fmt.Sprintf("%s has campaigned: %t", words[0], s.campaigns > before)}
	},
	// term: whether the leader and its term are as at the last `term`.
	"term": func(s *scene, _ *testing.T, _ []string) []string {
		before := s.term
		s.term = s.leader().raft().CurrentTerm()
		if before == 0 {
			return nil
		}
		return []string{fmt.Sprintf("the same term: %t", s.term == before)}
	},
	"add": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		return s.outcomeOf(time.Minute, func() error { return n.AddMember(t.Context(), words[0], words[0]+":8711") })
	},
	"remove": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		return s.outcomeOf(2*time.Second, func() error { return n.RemoveMember(t.Context(), words[0]) })
	},
	// transfer [N] [through N]: of the leadership, to N or whichever node is best.
	"transfer": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		return s.outcomeOf(200*time.Millisecond, func() error { return n.TransferLeadership(t.Context(), strings.Join(words, "")) })
	},
	// snapshot N: the node makes one, and drops the log before it.
	"snapshot": func(s *scene, _ *testing.T, words []string) []string {
		n := s.node(words[0])
		config := n.raft().ReloadableConfig()
		config.TrailingLogs = 1
		s.must(n.raft().ReloadConfig(config))
		s.must(n.raft().Snapshot().Error())
		first, err := n.store.Logs().FirstIndex()
		s.must(err)
		return []string{fmt.Sprintf("the log of %s is cut: %t", n.id, first > 1)}
	},
	// hash N BYTE: the node's state hash becomes this byte.
	"hash": func(s *scene, t *testing.T, words []string) []string {
		value, err := strconv.Atoi(words[1])
		must(t, err)
		s.hashes.set(s.node(words[0]), byte(value))
		return nil
	},
}

func init() {
	maps.Copy(sceneCommands, sceneStateCommands)
	maps.Copy(sceneCommands, sceneFolderCommands)
	maps.Copy(sceneCommands, sceneCallCommands)
	maps.Copy(sceneCommands, sceneDiskCommands)
	maps.Copy(sceneConditions, sceneCallConditions)
	maps.Copy(sceneConditions, sceneDiskConditions)
}

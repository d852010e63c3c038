package declare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// machineNode is a Node over a real state machine.
type machineNode struct {
	mu      sync.Mutex
	machine *fsm.Machine
	index   uint64
	applied int // how many commands were
	read    error
	write   []error // what the next commands of DoMany end with, nil: applied
}

func newMachineNode() *machineNode { return &machineNode{machine: fsm.New()} }

func (n *machineNode) Read(context.Context, calls.Consistency) (calls.Reading, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return calls.Reading{Index: n.index}, n.read
}

func (n *machineNode) View(read func(m *fsm.Machine)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	read(n.machine)
}

func (n *machineNode) DoMany(_ context.Context, list []calls.Call) ([]calls.Reply, []error) {
	replies, errs := make([]calls.Reply, len(list)), make([]error, len(list))
	for i, call := range list {
		n.mu.Lock()
		var fail error
		if len(n.write) > 0 {
			fail, n.write = n.write[0], n.write[1:]
		}
		n.mu.Unlock()
		if errs[i] = fail; fail == nil {
			replies[i].Result = n.do(call.Command)
		}
	}
	return replies, errs
}

func (n *machineNode) do(command fsm.Command) fsm.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.index++
	n.applied++
	id := fsm.RequestID{Origin: 1, Sequence: n.index}
	return n.machine.Apply(n.index, fsm.EncodeEntry(0, [][]byte{fsm.Envelope{Request: id, Key: ""}.Encode(command)})).Commands[0].Result
}

// state returns the semaphores as text: name, permits, offset, level.
func (n *machineNode) state() string {
	var all []string
	n.View(func(m *fsm.Machine) {
		for _, s := range m.Semaphores("", "", 1<<20) {
			level := "none"
			if s.Level != nil {
				level = fmt.Sprint(*s.Level)
			}
			all = append(all, fmt.Sprintf("%s %d%+d %s", s.Name, s.Permits, s.Offset, level))
		}
	})
	return strings.Join(all, ", ")
}

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDeclareMakesAndSets(t *testing.T) {
	n := newMachineNode()
	n.do(fsm.CreateSemaphore{Name: "native", Permits: 9})
	n.do(fsm.CreateSemaphore{Name: "B", Permits: 1, Metadata: []fsm.Pair{{Key: "k", Value: "v"}}})
	for _, c := range []struct {
		text    string
		changed int
		want    string
	}{
		{"[semaphores]\nA = 2\nB = { max = 1, level = 1 }\n", 2, "A 2+0 0, B 1+0 1, native 9+0 none"},
		{"[semaphores]\nA = 2\nB = { max = 1, level = 1 }\n", 0, "A 2+0 0, B 1+0 1, native 9+0 none"},
		{"[semaphores]\nA = 3\n", 1, "A 3+0 0, B 1+0 1, native 9+0 none"},
		{"[semaphores]\nB = { max = 1, level = -1 }\n", 1, "A 3+0 0, B 1+0 -1, native 9+0 none"},
		{"", 0, "A 3+0 0, B 1+0 -1, native 9+0 none"},
	} {
		before := n.applied
		changed, refused, err := Declare(t.Context(), n, parse(t, c.text))
		if err != nil || refused != nil || changed != c.changed || n.state() != c.want || n.applied-before != c.changed {
			t.Errorf("%q: %d changed by %d commands, %v: %s", c.text, changed, n.applied-before, err, n.state())
		}
	}
	n.do(fsm.Up{Name: "A", Count: 5})
	if _, _, err := Declare(t.Context(), n, parse(t, "[semaphores]\nA = 3\n")); err != nil || !strings.HasPrefix(n.state(), "A 3+5 0") {
		t.Errorf("an up is undone: %v: %s", err, n.state())
	}
	n.View(func(m *fsm.Machine) {
		if s, _ := m.Semaphore("B"); len(s.Metadata) != 1 {
			t.Error("metadata is lost")
		}
	})
}

func TestDeclareMany(t *testing.T) {
	n := newMachineNode()
	var text strings.Builder
	text.WriteString("[semaphores]\n")
	for i := range 2*declaredAtOnce + 1 {
		fmt.Fprintf(&text, "s%d = %d\n", i, i)
	}
	changed, _, err := Declare(t.Context(), n, parse(t, text.String()))
	if err != nil || changed != 2*declaredAtOnce+1 || strings.Count(n.state(), ",") != 2*declaredAtOnce {
		t.Errorf("%d, %v", changed, err)
	}
}

// Without a leader Declare tries again and again, and it repeats a command that was lost.
func TestDeclareIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMachineNode()
		n.read = outcome.ErrNoLeader
		n.write = []error{nil, outcome.ErrOutcomeUnknown, outcome.ErrNotTried, outcome.ErrOverloaded}
		done := make(chan error, 1)
		go func() {
			_, _, err := Declare(t.Context(), n, parse(t, "[semaphores]\nA = 1\nB = 2\nC = 3\n"))
			done <- err
		}()
		time.Sleep(time.Minute) // virtual
		if len(done) > 0 {
			t.Fatalf("it gave up: %v", <-done)
		}
		n.mu.Lock()
		n.read = nil
		n.mu.Unlock()
		if err := <-done; err != nil || n.state() != "A 1+0 0, B 2+0 0, C 3+0 0" {
			t.Errorf("%v: %s", err, n.state())
		}
	})
}

func TestDeclareEnds(t *testing.T) {
	n := newMachineNode()
	n.read = outcome.ErrNoLeader
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := parse(t, "[semaphores]\nA = 1\n")
	if _, _, err := Declare(ctx, n, file); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx: %v", err)
	}
	n.read = outcome.ErrDraining
	if _, _, err := Declare(t.Context(), n, file); !errors.Is(err, outcome.ErrDraining) {
		t.Errorf("drains: %v", err)
	}
	n.read = nil
	limits := fsm.DefaultLimits()
	limits.Semaphores = 1
	n.do(fsm.StartTerm{Term: 1, Leader: "n1", Limits: limits})
	_, refused, err := Declare(t.Context(), n, parse(t, "[semaphores]\nA = 1\nB = 1\n"))
	if err != nil || !slices.Equal(refused, []Refusal{{"B", "", "limit-reached semaphores"}}) || n.state() != "A 1+0 0" {
		t.Errorf("refused: %v, %v: %s", err, refused, n.state())
	}
}

// TestRefusalsNameTheKey: each refused semaphore is told with the key and what is allowed, and the others are set.
func TestRefusalsNameTheKey(t *testing.T) {
	for table, want := range map[string]string{
		`{ max = 1, per_group = 1 }`: "per_group it needs groups",
		`{ max = "none" }`:           "max \"none\" needs groups and per_group",
		`{ max = "none", groups = "request", per_group = 1, paused = "x" }`: "paused a semaphore with max",
		`{ max = 1, when_full = "drop-oldest" }`:                            "when_full \"drop-oldest\" needs max_waiting",
		`{ max = 1, window = "1m", cooldown = "1s" }`:                       " window goes with none of",
		`{ max = "none", groups = "request", per_group = 1, slots = true }`: "slots a semaphore with max",
		`{ max = 1048577, slots = true }`:                                   "max too many permits",
	} {
		n := newMachineNode()
		changed, refused, err := Declare(t.Context(), n, parse(t, "[semaphores]\nA = 1\nB = "+table+"\nC = 1\n"))
		if err != nil || changed != 2 || len(refused) != 1 || refused[0].Semaphore != "B" || !strings.HasPrefix(refused[0].Key+" "+refused[0].Reason, want) {
			t.Errorf("%s: %d changed, %v: %q", table, changed, err, refused)
		}
	}
	n := newMachineNode()
	n.do(fsm.CreateSemaphore{Name: "B", Permits: 1})
	for session := range uint64(2) { // the second waits
		n.do(fsm.AcquireOnce{Session: 1 + session, Name: "B", Count: 1, TTLMS: 60_000, WaitMS: 60_000})
	}
	if _, refused, err := Declare(t.Context(), n, parse(t, "[semaphores]\nB = { max = 1, groups = \"request\" }\n")); err != nil || len(refused) != 1 || refused[0].Key != "groups" {
		t.Errorf("while a request waits: %v: %q", err, refused)
	}
}

func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "throttle.toml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("[semaphores]\nA = -1\n")
		read := 0
		d, err := Open(path, func(*File) { read++ })
		if err != nil {
			t.Fatal(err)
		}
		n := newMachineNode()
		n.read = outcome.ErrNoLeader
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		reload, done := make(chan os.Signal), make(chan struct{})
		go func() {
			defer close(done)
			d.Keep(ctx, n, reload, hclog.New(&hclog.LoggerOptions{Output: &log}))
		}()
		step := func(what, state string, inPlace bool, names ...string) {
			t.Helper()
			time.Sleep(time.Second) // virtual
			synctest.Wait()
			if n.state() != state || d.Check().OK != inPlace || strings.Join(d.Names(), " ") != strings.Join(names, " ") {
				t.Errorf("%s: %q, %+v, %q", what, n.state(), d.Check(), d.Names())
			}
		}
		step("no leader", "", false, "A")
		n.mu.Lock()
		n.read = nil
		n.mu.Unlock()
		step("declared", "A 0+0 0", true, "A")
		write("[semaphores]\nB = 4\n")
		step("not told yet", "A 0+0 0", true, "A")
		reload <- syscall.SIGHUP
		step("reloaded", "A 0+0 0, B 4+0 0", true, "B")
		write("[semaphores]\nB = x\n")
		reload <- syscall.SIGHUP
		step("a bad file", "A 0+0 0, B 4+0 0", true, "B")
		write("[semaphores]\nB = 5\n")
		reload <- syscall.SIGHUP
		step("a good one again", "A 0+0 0, B 5+0 0", true, "B")
		write("[semaphores]\nB = { max = 7, per_group = 1 }\nC = 1\n")
		reload <- syscall.SIGHUP
		step("one refused", "A 0+0 0, B 5+0 0, C 1+0 0", true, "B", "C")
		if detail := d.Check().Detail; !strings.Contains(detail, "refuses") {
			t.Errorf("one refused, and the check: %s", detail)
		}
		write("[semaphores]\nB = 5\n")
		reload <- syscall.SIGHUP
		step("none refused", "A 0+0 0, B 5+0 0, C 1+0 0", true, "B")
		if detail := d.Check().Detail; strings.Contains(detail, "refuses") {
			t.Errorf("none refused, and the check: %s", detail)
		}
		cancel()
		<-done
		if read != 5 {
			t.Errorf("onRead is called %d times", read)
		}
		for words, count := range map[string]int{"counts as 0": 1, "[ERROR]": 3, "no TOML": 1, "semaphores declared": 4, "semaphore=B key=per_group": 1} {
			if got := strings.Count(log.String(), words); got != count {
				t.Errorf("%q is logged %d times:\n%s", words, got, log.String())
			}
		}
	})
}

var _ Node = (*cluster.Node)(nil)

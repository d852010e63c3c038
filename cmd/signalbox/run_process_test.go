//go:build processes && linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// available waits until this many permits of a semaphore are available.
func (c *client) available(t *testing.T, name string, want int64) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if s := c.must(t, 0, http.MethodGet, semaphorePath(name), "", http.StatusOK); s.Available != want {
			return fmt.Errorf("%d of %s are free, not %d", s.Available, name, want)
		}
		return nil
	})
}

// runScene is one run in a test with many of them. Each uses a separate semaphore.
type runScene struct {
	*stage
	c     *processes
	name  string
	flags []string
}

func (s *runScene) run(flags ...string) *process {
	s.Helper()
	flags = slices.Concat(s.flags, flags)
	return s.startRun(filepath.Join(s.TempDir(), "run.log"), s.name, s.c.bases, flags...)
}

// TestRun runs commands, real ones, against three nodes.
func TestRun(t *testing.T) {
	c := startProcesses(t, testProgram)
	for i, scene := range []struct {
		name string
		play func(s *runScene)
	}{
		{"holds and tells", (*runScene).holdsAndTells},
		{"status of a signal", (*runScene).statusOfSignal},
		{"hands signals on", (*runScene).handsOn},
		{"ends what is left", (*runScene).endsWhatIsLeft},
		{"not in time", (*runScene).notInTime},
		{"waits its turn", (*runScene).waitsItsTurn},
		{"refused", (*runScene).refusedAtOnce},
		{"nobody there", (*runScene).nobodyThere},
		{"interrupted while it waits", (*runScene).interruptedWaiting},
		{"verbs interrupted while they wait", (*runScene).verbsInterrupted},
		{"revoked", (*runScene).revoked},
		{"killed itself", (*runScene).killedItself},
		{"paused", (*runScene).paused},
	} {
		t.Run(scene.name, func(t *testing.T) {
			t.Parallel()
			scene.play(&runScene{newStage(t), c, fmt.Sprintf("scene-%d/&", i), []string{"--permits", "2", "-n", "2", "--ttl", "6s", "--grace", "1s"}})
		})
	}
}

func (s *runScene) holdsAndTells() {
	p := s.run()
	child := s.next()
	if child.semaphore != s.name {
		s.Errorf("the command was told semaphore %q", child.semaphore)
	}
	sem := s.c.must(s.T, 1, http.MethodGet, semaphorePath(s.name), "", http.StatusOK)
	if len(sem.Holders) != 1 || sem.Permits != 2 || sem.Held != 2 || sem.Holders[0].Session != child.session || sem.Holders[0].Token != child.token {
		s.Fatalf("%+v; the command was told session %s, token %d", sem, child.session, child.token)
	}
	host, _ := os.Hostname()
	m := sem.Holders[0].Metadata
	if m["host"] != host || m["pid"] != fmt.Sprint(p.command.Process.Pid) || m["command"] != filepath.Base(testProgram) {
		s.Errorf("metadata %v", m)
	}
	child.tell("exit 7")
	p.exits(s.T, 7)
	s.c.available(s.T, s.name, 2)
	p = s.run("--permits", "9") // does not change it
	child = s.next()
	child.tell("exit 0")
	p.exits(s.T, 0)
	if sem := s.c.must(s.T, 1, http.MethodGet, semaphorePath(s.name), "", http.StatusOK); sem.Permits != 2 {
		s.Errorf("%d permits", sem.Permits)
	}
}

func (s *runScene) statusOfSignal() {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p := s.run()
		s.next().tell("die %d", signal)
		p.exits(s.T, 128+int(signal))
	}
}

func (s *runScene) handsOn() {
	caught := make(chan os.Signal, 1) // nohup may have started the tests, and run hands on no signal that its caller ignores
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	p := s.run()
	child := s.next()
	child.tell("fork")
	grandchild := s.next()
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		p.signal(sent)
		child.hears(sent)
		grandchild.hears(sent)
	}
	grandchild.tell("exit 0")
	grandchild.ended(5 * time.Second)
	child.alive()
	child.tell("exit 130")
	p.exits(s.T, 130)
}

func (s *runScene) endsWhatIsLeft() {
	p := s.run()
	child := s.next()
	child.tell("fork")
	grandchild := s.next()
	child.tell("exit 3")
	child.ended(5 * time.Second)
	grandchild.hears(syscall.SIGTERM)
	if sem := s.c.must(s.T, 1, http.MethodGet, semaphorePath(s.name), "", http.StatusOK); sem.Available != 0 {
		s.Errorf("%d are free while the grandchild runs", sem.Available)
	}
	p.exits(s.T, 3)
	grandchild.ended(5 * time.Second)
	s.c.available(s.T, s.name, 2)
}

func (s *runScene) notInTime() {
	s.c.must(s.T, 0, http.MethodPut, semaphorePath(s.name), `{"permits":2}`, http.StatusCreated)
	s.c.must(s.T, 0, http.MethodPost, semaphorePath(s.name)+"/leases", `{"ttl":"5m"}`, http.StatusCreated)
	s.run("--wait", "0").exits(s.T, cli.StatusNotGranted, "not free")
	s.run("--wait", "700ms").exits(s.T, cli.StatusNotGranted, "700ms")
	if sem := s.c.must(s.T, 0, http.MethodGet, semaphorePath(s.name), "", http.StatusOK); len(sem.Waiters) != 0 {
		s.Errorf("%d still wait", len(sem.Waiters))
	}
}

func (s *runScene) waitsItsTurn() {
	first := s.run()
	holder := s.next()
	second := s.run()
	eventually(s.T, 10*time.Second, func() error {
		sem := s.c.must(s.T, 2, http.MethodGet, semaphorePath(s.name), "", http.StatusOK)
		if len(sem.Waiters) != 1 || sem.Waiters[0].Metadata["pid"] != fmt.Sprint(second.command.Process.Pid) {
			return fmt.Errorf("waiters: %+v", sem.Waiters)
		}
		return nil
	})
	holder.tell("exit 0")
	next := s.next()
	if next.token <= holder.token {
		s.Errorf("token %d after %d", next.token, holder.token)
	}
	next.tell("exit 0")
	first.exits(s.T, 0)
	second.exits(s.T, 0)
}

func (s *runScene) refusedAtOnce() {
	s.flags = []string{"--ttl", "6s"}
	s.run().exits(s.T, cli.StatusRefused, "there is no semaphore", "--permits N")
	s.run("--permits", "2", "-n", "3").exits(s.T, cli.StatusRefused, "never")
}

func (s *runScene) nobodyThere() {
	dead := fmt.Sprintf("http://127.0.0.1:%d", freePorts(s.T, 0))
	s.startRun(filepath.Join(s.TempDir(), "run.log"), s.name, []string{dead}, "--wait", "500ms").
		exits(s.T, cli.StatusUnreachable, "no node replied")
}

func (s *runScene) interruptedWaiting() {
	s.c.must(s.T, 0, http.MethodPut, semaphorePath(s.name), `{"permits":2}`, http.StatusCreated)
	s.c.must(s.T, 0, http.MethodPost, semaphorePath(s.name)+"/leases", `{"ttl":"5m"}`, http.StatusCreated)
	p := s.run()
	eventually(s.T, 10*time.Second, s.waiters(1))
	p.signal(syscall.SIGINT)
	p.exits(s.T, 130, "interrupt")
	eventually(s.T, 0, s.waiters(0))
}

// waiters reports whether this many requests wait.
func (s *runScene) waiters(want int) func() error {
	return func() error {
		if sem := s.c.must(s.T, 2, http.MethodGet, semaphorePath(s.name), "", http.StatusOK); len(sem.Waiters) != want {
			return fmt.Errorf("%d wait, not %d", len(sem.Waiters), want)
		}
		return nil
	}
}

// verbsInterrupted: each signal that asks to end withdraws the request. The HUP that nohup ignores stays ignored.
func (s *runScene) verbsInterrupted() {
	caught := make(chan os.Signal, 1) // nohup may have started the tests
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	s.c.must(s.T, 0, http.MethodPut, semaphorePath(s.name), `{"permits":1}`, http.StatusCreated)
	s.c.must(s.T, 0, http.MethodPost, semaphorePath(s.name)+"/leases", `{"ttl":"5m"}`, http.StatusCreated)
	nohup, err := exec.LookPath("nohup")
	must(s.T, err)
	for _, k := range []struct {
		verb    string
		signals []syscall.Signal // the last of them ends it
	}{
		{"down", []syscall.Signal{syscall.SIGHUP}},
		{"acquire", []syscall.Signal{syscall.SIGQUIT}},
		{"acquire", []syscall.Signal{syscall.SIGTERM}},
		{"down", []syscall.Signal{syscall.SIGINT}},
		{"nohup", []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
	} {
		program, arguments := testProgram, []string{k.verb, s.name, "--wait", "60s", "--addr", strings.Join(s.c.bases, ",")}
		if k.verb == "nohup" {
			program, arguments[0] = nohup, "down"
			arguments = append([]string{testProgram}, arguments...)
		}
		p := startProcess(s.T, program, filepath.Join(s.TempDir(), "verb.log"), arguments...)
		eventually(s.T, 10*time.Second, s.waiters(1))
		for _, sent := range k.signals {
			p.signal(sent)
		}
		p.exits(s.T, 128+int(k.signals[len(k.signals)-1]), "interrupted", "the request is withdrawn")
		eventually(s.T, 0, s.waiters(0))
	}
}

func (s *runScene) revoked() {
	p := s.run()
	child := s.next()
	s.c.must(s.T, 0, http.MethodDelete, semaphorePath(s.name)+"/holders/"+child.session+"?reason=maintenance", "", http.StatusNoContent)
	child.hears(syscall.SIGTERM)
	child.tell("exit 0") // too late: its status does not count
	p.exits(s.T, cli.StatusLost, "lost", "maintenance")
}

// killedItself: run is killed, so its command must end. A process that the command has started goes on, and still runs
// when the next client holds the permits. The tokens of the two differ.
func (s *runScene) killedItself() {
	p := s.run()
	child := s.next()
	child.tell("fork")
	grandchild := s.next()
	p.kill()
	child.ended(5 * time.Second)
	s.c.available(s.T, s.name, 2)
	p = s.run()
	next := s.next()
	grandchild.tell("read")
	grandchild.says("read  EOF")
	if grandchild.token != child.token || next.token <= grandchild.token {
		s.Errorf("the next one has token %d, what runs on %d, its parent had %d", next.token, grandchild.token, child.token)
	}
	grandchild.tell("exit 0")
	grandchild.ended(5 * time.Second)
	next.tell("exit 0")
	p.exits(s.T, 0)
}

// paused: run is paused for longer than its lease lives. It notices that at once afterwards, and ends its command
// without any grace: another client may hold the permits by then.
func (s *runScene) paused() {
	p := s.run("--grace", "2s")
	child := s.next()
	p.signal(syscall.SIGSTOP)
	s.c.available(s.T, s.name, 2)
	resumed := time.Now()
	p.signal(syscall.SIGCONT)
	child.ended(10 * time.Second)
	if after := child.at.Sub(resumed); after > time.Second {
		s.Errorf("the command was ended %v after run went on", after)
	}
	p.exits(s.T, cli.StatusLost, "lost")
}

// outlivingTTL is the ttl of commands that outlive restarts and elections: run renews after a third of it.
const outlivingTTL = 12 * time.Second

// TestRunOutlivesNodes restarts one node after another, and kills the leader, while several runs execute commands. No
// command is ended, and each run keeps its permits.
func TestRunOutlivesNodes(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, testProgram)
	s := newStage(t)
	var runs []*process
	var children []*player
	for i := range 3 {
		addresses := slices.Concat(c.bases[i:], c.bases[:i])
		runs = append(runs, s.startRun(filepath.Join(t.TempDir(), "run.log"), "db", addresses, "--permits", "3", "--ttl", outlivingTTL.String()))
		children = append(children, s.next())
	}
	same := func(what string) {
		t.Helper()
		sem := c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK)
		if len(sem.Holders) != len(children) {
			t.Fatalf("%s: %d holders", what, len(sem.Holders))
		}
		for i, child := range children {
			child.alive()
			if !slices.ContainsFunc(sem.Holders, func(h place) bool { return h.Session == child.session && h.Token == child.token }) {
				t.Errorf("%s: command %d's token %d is not among %+v", what, i, child.token, sem.Holders)
			}
		}
	}
	for node := range c.running {
		c.running[node].terminate(t, stopWithin)
		same(fmt.Sprintf("n%d away", node+1))
		c.start(node)
		c.waitReady(node)
		same(fmt.Sprintf("n%d back", node+1))
	}
	for range 2 {
		leader := c.mustLead(t)
		c.running[leader].kill()
		same("leader killed")
		<-time.After(outlivingTTL / 3) // each lease has to be renewed meanwhile
		c.start(leader)
		c.waitReady(leader)
	}
	<-time.After(outlivingTTL) // a lease without a renewal would be over
	same("in the end")
	for i, child := range children {
		child.tell("exit %d", 40+i)
		runs[i].exits(t, 40+i)
	}
	c.available(t, "db", 3)
	sameState(t, c)
}

// severable is a connection to a node that can be cut.
type severable struct {
	net.Listener
	mu      sync.Mutex
	ways    []net.Conn
	stopped bool
}

func sever(t *testing.T, to string) *severable {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &severable{Listener: listener}
	var all sync.WaitGroup
	t.Cleanup(func() { s.Close(); s.cut(true); all.Wait() })
	all.Go(func() {
		for {
			from, err := s.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", to)
			if err != nil {
				from.Close()
				continue
			}
			s.mu.Lock()
			s.ways = append(s.ways, from, onward)
			s.mu.Unlock()
			all.Go(func() { s.carry(onward, from) })
			all.Go(func() { s.carry(from, onward) })
		}
	})
	return s
}

// carry passes bytes on while the connection is not cut. After that it drops them.
func (s *severable) carry(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		s.mu.Lock()
		stopped := s.stopped
		s.mu.Unlock()
		if err != nil {
			return
		}
		if !stopped {
			_, _ = to.Write(buffer[:n])
		}
	}
}

// cut makes a connection drop all further bytes, or closes it.
func (s *severable) cut(closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, way := range s.ways {
		if closing {
			way.Close()
		}
	}
}

// TestRunCutOffForReal cuts a run off from all nodes silently. Its command and the processes that the command has
// started all ignore TERM; nevertheless they have ended before the next client in line is granted the permit.
func TestRunCutOffForReal(t *testing.T) {
	c := startProcesses(t, testProgram)
	s := newStage(t)
	var ways []*severable
	var addresses []string
	for _, base := range c.bases {
		way := sever(t, strings.TrimPrefix(base, "http://"))
		ways = append(ways, way)
		addresses = append(addresses, "http://"+way.Addr().String())
	}
	p := s.startRun(filepath.Join(t.TempDir(), "run.log"), "db", addresses, "--permits", "1", "--ttl", "9s")
	child := s.next()
	child.tell("fork")
	grandchild := s.next()
	granted := make(chan time.Time, 1)
	go func() {
		defer close(granted)
		r, err := c.insist(t.Context(), 1, http.MethodPost, semaphorePath("db")+"/leases", `{"ttl":"1m","wait":"1m"}`)
		if err == nil && r.status == http.StatusCreated {
			granted <- time.Now()
		}
	}()
	<-time.After(4 * time.Second) // a renewal or more
	child.alive()
	for _, way := range ways {
		way.cut(false)
	}
	cut := time.Now()
	child.hears(syscall.SIGTERM)
	grandchild.hears(syscall.SIGTERM)
	termed := time.Since(cut)
	child.ended(5 * time.Second)
	grandchild.ended(time.Second)
	anew, ok := <-granted
	if !ok {
		t.Fatal("the next one was not granted the permit")
	}
	if !child.at.Before(anew) || !grandchild.at.Before(anew) {
		t.Errorf("the command was gone %v and its child %v before the next grant", anew.Sub(child.at), anew.Sub(grandchild.at))
	}
	t.Logf("cut off; TERM %v later, gone %v and %v later, granted anew %v later", termed, child.at.Sub(cut), grandchild.at.Sub(cut), anew.Sub(cut))
	p.exits(t, cli.StatusLost, "lost", "not renewed in time")
}

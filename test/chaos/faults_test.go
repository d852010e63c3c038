//go:build chaos && linux

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// fault is one disturbance. begin makes it and returns a function that ends it.
type fault struct {
	name  string
	needs need
	begin func(r *run, random *rand.Rand) (detail string, end func())
}

// need says what a fault requires, and whether it may be one of a pair.
type need int

const (
	beside need = 1 << iota // it may be made beside another fault
	lives                   // it ends no process and refuses no connection, so no leader may be found dead
	links                   // a network that breaks links
	small                   // a small file system
)

var faults = []fault{
	{"kill the leader", 0, killLeaders(true)},
	{"kill each leader after 2 s", 0, killLeaders(false)},
	{"leader vanishes", links, vanish},
	{"leader pauses", lives, silenceLeaders("paused", (*run).stopped)},
	{"leader is cut off", lives | links, silenceLeaders("cut off", (*run).cutOff)},
	{"leader's disk hangs", lives, silenceLeaders("with a hung disk", (*run).hung)},
	{"streams end", lives | links, streamsEnd},
	{"refused leader", links, refusedLeader},
	{"kill two", 0, killSome(2)},
	{"kill all", 0, killSome(0)},
	{"stop the leader", 0, stopLeader},
	{"rolling restart", 0, rollingRestart},
	{"pause", beside | lives, pause},
	{"isolate", beside | lives | links, isolate},
	{"ring", lives | links, ring},
	{"one way", beside | lives | links, oneWay},
	{"flap", beside | lives | links, flap},
	{"lossy", beside | lives | links, lossy},
	{"narrow", beside | lives | links, narrow},
	{"full disk", lives | small, fullDisk},
	{"hung disk", beside | lives, hungDisk},
	{"failing disk", 0, failingDisk},
	{"damaged folder", 0, damaged},
	{"wiped node", 0, wiped},
	{"transfers", beside | lives, transfers},
	{"members", 0, members},
}

// possible returns the faults that can be made here.
func (c *cluster) possible() (list []fault) {
	disk := c.nodes[len(c.nodes)-1].disk
	for _, f := range faults {
		if f.needs&links != 0 && !c.breaks || f.needs&small != 0 && !disk {
			continue
		}
		list = append(list, f)
	}
	return list
}

// leaderOr returns the leader, or a node without a leader.
func (r *run) leaderOr(random *rand.Rand) *node {
	if leader := r.leader(); leader != nil {
		return leader
	}
	return r.nodes[random.IntN(len(r.nodes))]
}

// some returns nodes in random order.
func (r *run) some(random *rand.Rand, count int) (list []*node) {
	for _, i := range random.Perm(len(r.nodes))[:count] {
		list = append(list, r.nodes[i])
	}
	return list
}

// killLeaders kills leaders repeatedly. If patient is set it waits before each kill until all nodes are ready, else for
// 2 s.
func killLeaders(patient bool) func(*run, *rand.Rand) (string, func()) {
	return func(r *run, random *rand.Rand) (string, func()) {
		chance := rand.New(rand.NewPCG(random.Uint64(), 0))
		return "", again(func(done <-chan struct{}) {
			n := r.leaderOr(chance)
			next := time.Now().Add(2 * time.Second)
			r.lost("killed")
			n.kill()
			rest(done, time.Duration(chance.IntN(1000))*time.Millisecond)
			n.start()
			if patient {
				r.ready()
				next = time.Now().Add(time.Duration(200+chance.IntN(500)) * time.Millisecond)
			}
			rest(done, time.Until(next))
		})
	}
}

// silenceLeaders silences living leaders repeatedly, for 5 s each. A leader falls silent 2 s after its disk hangs.
func silenceLeaders(how string, set func(r *run, n *node, on bool)) func(*run, *rand.Rand) (string, func()) {
	return func(r *run, random *rand.Rand) (string, func()) {
		chance := rand.New(rand.NewPCG(random.Uint64(), 0))
		return "", again(func(done <-chan struct{}) {
			n := r.leaderOr(chance)
			r.lost(how)
			set(r, n, true)
			rest(nil, 5*time.Second)
			set(r, n, false)
			r.ready()
			rest(done, time.Duration(200+chance.IntN(500))*time.Millisecond)
		})
	}
}

func (r *run) cutOff(n *node, on bool) { r.around(n, false, on) }

func (*run) stopped(n *node, on bool) {
	n.signal(map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[on])
}

func (*run) hung(n *node, on bool) { n.set(map[bool]string{true: "hang"}[on]) }

// vanish cuts the leader off before it is killed, so that no sign of its death arrives.
func vanish(r *run, random *rand.Rand) (string, func()) {
	n := r.leaderOr(random)
	r.lost("gone without a sign")
	r.around(n, true, true)
	n.kill()
	return n.id, func() {
		r.around(n, true, false)
		n.start()
	}
}

// streamsEnd resets streams between nodes at random.
func streamsEnd(r *run, random *rand.Rand) (string, func()) {
	share := 0.002 + 0.01*random.Float64()
	set := func(on bool) {
		for _, n := range r.nodes {
			r.reset(n, "! --syn", share, on)
		}
	}
	set(true)
	return fmt.Sprintf("%.1f %% of the packets of peers", 100*share), func() { set(false) }
}

// refusedLeader ends the streams of a living leader and refuses new connections. The leader may be found dead once,
// once more after 30 s, and so on.
func refusedLeader(r *run, random *rand.Rand) (string, func()) {
	n, began := r.leaderOr(random), time.Now()
	before, allowed := r.foundDead(n.id), 1
	set := func(on bool) {
		r.reset(n, "--syn", 1, on)
		r.reset(n, "! --syn", 0.02, on)
	}
	set(true)
	lead := again(func(done <-chan struct{}) { // so that it can be deposed again
		if leader := r.leader(); leader != nil && leader != n {
			set(false)
			_, _ = r.ask(leader, http.MethodPost, "/v1/cluster/leader", fmt.Sprintf(`{"id":%q}`, n.id), nil) // it fails while the node has not caught up
			set(true)
		}
		rest(done, 300*time.Millisecond)
	})
	return n.id, func() {
		lead()
		set(false)
		for pause := 30 * time.Second; time.Since(began) > pause; pause = 2*pause + 30*time.Second {
			allowed++
		}
		found := r.foundDead(n.id) - before
		r.t.Logf("%s, which lives, was found dead %d times, at most %d allowed", n.id, found, allowed)
		if found > allowed {
			r.fail("%s, which lives, was found dead %d times in %v", n.id, found, time.Since(began))
		}
	}
}

// reset answers a share of the packets from peers to a node with a reset, so that the peer sees the end of its stream.
// packets selects the packets that open a connection, or the other packets.
func (c *cluster) reset(n *node, packets string, share float64, on bool) {
	c.net.rule(n.number, on, fmt.Sprintf("INPUT -p tcp %s -m multiport --ports %d -m statistic --mode random --probability %.4f -j REJECT --reject-with tcp-reset",
		packets, peerPort, share))
}

// foundDead counts the campaigns that began because the process of a node was found dead; with the id "" it counts for
// all nodes.
func (c *cluster) foundDead(id string) (count int) {
	for _, n := range c.nodes {
		text, err := os.ReadFile(n.log())
		must(c.t, err)
		count += len(regexp.MustCompile(`this node campaigns: .* dead="?`+cmp.Or(id, "n")).FindAll(text, -1))
	}
	return count
}

// killSome kills count nodes at once; 0: all nodes.
func killSome(count int) func(*run, *rand.Rand) (string, func()) {
	return func(r *run, random *rand.Rand) (names string, end func()) {
		list := r.some(random, cmp.Or(count, len(r.nodes)))
		for _, n := range list {
			n.mayEnd.Store(true)
			n.signal(syscall.SIGKILL) // to all nodes before the wait
		}
		for _, n := range list {
			n.kill()
			names += n.id
		}
		return names, func() {
			for _, n := range list {
				n.start()
			}
		}
	}
}

func stopLeader(r *run, random *rand.Rand) (string, func()) {
	n := r.leaderOr(random)
	r.lost("stopped in order")
	n.terminate()
	return n.id, n.start
}

func rollingRestart(r *run, _ *rand.Rand) (string, func()) {
	for _, n := range r.nodes {
		if r.leader() == n {
			r.lost("stopped in order")
		}
		n.terminate()
		n.start()
		r.ready()
	}
	return "", func() {}
}

// again calls step repeatedly, until the returned function is called.
func again(step func(done <-chan struct{})) (end func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			step(done)
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	return func() { close(done); <-over }
}

// rest waits for a time, or until the end of a fault.
func rest(done <-chan struct{}, d time.Duration) {
	select {
	case <-done:
	case <-time.After(d): // how long this step lasts
	}
}

// pause stops a node for 0.5 to 3 election times, repeatedly.
func pause(r *run, random *rand.Rand) (string, func()) {
	n := r.target(random)
	chance := rand.New(rand.NewPCG(random.Uint64(), 0))
	return n.id, again(func(done <-chan struct{}) {
		n.signal(syscall.SIGSTOP)
		rest(done, time.Duration((0.5+2.5*chance.Float64())*float64(electionTime)))
		n.signal(syscall.SIGCONT)
		rest(done, time.Duration(200+chance.IntN(1000))*time.Millisecond)
	})
}

func isolate(r *run, random *rand.Rand) (string, func()) {
	n, withClients := r.target(random), random.IntN(2) == 0
	r.around(n, withClients, true)
	return fmt.Sprintf("%s, from clients too: %v", n.id, withClients), func() { r.around(n, withClients, false) }
}

// cut adds a rule that drops all packets from a node, or from the clients, to a node, or removes one such rule.
func (c *cluster) cut(from, to int, on bool) {
	c.net.rule(to, on, "INPUT -s "+c.net.host(from)+" -j DROP")
}

// around cuts a node off from the other nodes, and from clients.
func (c *cluster) around(n *node, withClients, on bool) {
	for _, other := range c.nodes {
		if other != n {
			c.cut(other.number, n.number, on)
			c.cut(n.number, other.number, on)
		}
	}
	if withClients {
		c.cut(clients, n.number, on)
	}
}

// ring leaves each node only the links with its two neighbours. So every node sees a majority; of three nodes, only one
// node does.
func ring(r *run, random *rand.Rand) (string, func()) {
	order := random.Perm(len(r.nodes))
	cut := func(on bool) {
		for i := range order {
			for k := i + 1; k < len(order); k++ {
				neighbours := k == i+1 || i == 0 && k == len(order)-1 && len(order) > 3
				if !neighbours {
					r.cut(order[i], order[k], on)
					r.cut(order[k], order[i], on)
				}
			}
		}
	}
	cut(true)
	return fmt.Sprint(order), func() { cut(false) }
}

func oneWay(r *run, random *rand.Rand) (string, func()) {
	pair := r.some(random, 2)
	r.cut(pair[0].number, pair[1].number, true)
	return pair[0].id + " to " + pair[1].id, func() { r.cut(pair[0].number, pair[1].number, false) }
}

func flap(r *run, random *rand.Rand) (string, func()) {
	pair, every := r.some(random, 2), time.Duration(200+random.IntN(800))*time.Millisecond
	set := func(on bool) {
		r.cut(pair[0].number, pair[1].number, on)
		r.cut(pair[1].number, pair[0].number, on)
	}
	return fmt.Sprintf("%s, %s every %v", pair[0].id, pair[1].id, every), again(func(done <-chan struct{}) {
		set(true)
		rest(done, every)
		set(false)
		rest(done, every)
	})
}

func lossy(r *run, random *rand.Rand) (string, func()) {
	share := 0.02 + 0.15*random.Float64()
	set := func(on bool) {
		for _, n := range r.nodes {
			r.net.rule(n.number, on, fmt.Sprintf("INPUT -i eth0 -m statistic --mode random --probability %.3f -j DROP", share))
		}
	}
	set(true)
	return fmt.Sprintf("%.0f %% of all that nodes get", 100*share), func() { set(false) }
}

// narrow makes the links of a node slow: it drops packets above some hundreds per second.
func narrow(r *run, random *rand.Rand) (string, func()) {
	n, packets := r.target(random), 50+random.IntN(250)
	set := func(on bool) {
		for _, other := range r.nodes {
			if other != n {
				r.net.rule(n.number, on, fmt.Sprintf("INPUT -s %s -m hashlimit --hashlimit-above %d/sec --hashlimit-burst %d --hashlimit-name narrow -j DROP",
					r.net.host(other.number), packets, packets/5+1))
			}
		}
	}
	set(true)
	return fmt.Sprintf("%s, %d packets a second from each", n.id, packets), func() { set(false) }
}

// fullDisk fills the file system of one node, except for a little space or none. The node leads if possible.
func fullDisk(r *run, random *rand.Rand) (string, func()) {
	n := r.nodes[len(r.nodes)-1]
	_, _ = r.ask(r.leaderOr(random), http.MethodPost, "/v1/cluster/leader", fmt.Sprintf(`{"id":%q}`, n.id), nil)
	var fs syscall.Statfs_t
	must(r.t, syscall.Statfs(filepath.Dir(n.data), &fs))
	leave := int64(random.IntN(3)) * 3 << 20
	filler := filepath.Join(filepath.Dir(n.data), "filler")
	if err := os.WriteFile(filler, make([]byte, max(0, int64(fs.Bavail)*fs.Bsize-leave)), 0o600); err != nil && leave > 0 {
		r.fail("the disk can't be filled: %v", err)
	}
	return fmt.Sprintf("%s, at most %d MiB left", n.id, leave>>20), func() { must(r.t, os.Remove(filler)) }
}

func hungDisk(r *run, random *rand.Rand) (string, func()) {
	n := r.target(random)
	n.set("hang")
	return n.id, func() { n.set("") }
}

// failingDisk makes each synced write of a node fail. The node must not continue as if it had written: it must end, or
// be restarted.
func failingDisk(r *run, random *rand.Rand) (string, func()) {
	n := r.target(random)
	n.mayEnd.Store(true)
	n.set("fail")
	return n.id, func() {
		ended := !n.alive()
		n.kill()
		n.set("")
		n.start()
		r.note("%s had ended by itself: %v", n.id, ended)
	}
}

// damaged damages a file of a node that is down. The node must start with sound data, or refuse to start. Then we empty
// its folder, as its message says.
func damaged(r *run, random *rand.Rand) (string, func()) {
	n := r.target(random)
	n.kill()
	files, err := filepath.Glob(filepath.Join(n.data, "*"))
	must(r.t, err)
	var choice []string
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Size() >= 4096 {
			choice = append(choice, file)
		}
	}
	if len(choice) == 0 {
		r.fail("%s has no file to damage", n.id)
		return n.id, n.start
	}
	file := choice[random.IntN(len(choice))]
	how := r.damage(file, random)
	return fmt.Sprintf("%s: %s of %s", n.id, how, filepath.Base(file)), func() {
		n.launch(true)
		r.until(n.id+" is ready, or has refused its folder", patience, func() bool {
			code, err := r.ask(n, http.MethodGet, "/readyz", "", nil)
			return !n.alive() || err == nil && code == http.StatusOK
		})
		if n.alive() {
			r.note("%s takes its folder", n.id)
			n.mayEnd.Store(false)
			return
		}
		r.note("%s refuses its folder", n.id)
		must(r.t, os.RemoveAll(n.data))
		n.start()
	}
}

// damage flips bits of a file, replaces a page by zeros, or cuts the end off.
func (r *run) damage(file string, random *rand.Rand) string {
	text, err := os.ReadFile(file)
	must(r.t, err)
	how := [...]string{"flipped bits", "a zeroed page", "a torn tail"}[random.IntN(3)]
	switch how {
	case "flipped bits":
		for range 1 + random.IntN(200) {
			text[random.IntN(len(text))] ^= 1 << random.IntN(8)
		}
	case "a zeroed page":
		at := random.IntN(len(text)/4096) * 4096
		clear(text[at:min(at+4096, len(text))])
	default:
		text = text[:len(text)-1-random.IntN(min(len(text)-1, 1<<20))]
	}
	must(r.t, os.WriteFile(file, text, 0o600))
	return how
}

// wiped removes the folder of a node while the node is down, so that it gets a snapshot.
func wiped(r *run, random *rand.Rand) (string, func()) {
	n := r.target(random)
	n.kill()
	must(r.t, os.RemoveAll(n.data))
	return n.id, n.start
}

func transfers(r *run, random *rand.Rand) (string, func()) {
	chance := rand.New(rand.NewPCG(random.Uint64(), 0))
	return "", again(func(done <-chan struct{}) {
		_, _ = r.ask(r.nodes[chance.IntN(len(r.nodes))], http.MethodPost, "/v1/cluster/leader", "{}", nil) // fails if there is no successor
		rest(done, time.Duration(50+chance.IntN(500))*time.Millisecond)
	})
}

// members adds a node, and removes it again.
func members(r *run, random *rand.Rand) (string, func()) {
	n, through := r.spare, r.nodes[random.IntN(len(r.nodes))]
	n.start()
	change := func(method, body string) func() bool {
		return func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			code, err := r.askFor(ctx, through, method, "/v1/cluster/members/"+n.id, body, nil)
			return err == nil && (code == http.StatusOK || code == http.StatusAccepted)
		}
	}
	r.until(n.id+" is added", patience, change(http.MethodPut, fmt.Sprintf(`{"peer":%q}`, n.peer())))
	return n.id + " through " + through.id, func() {
		n.mayEnd.Store(true)
		r.until(n.id+" is removed", patience, change(http.MethodDelete, ""))
		n.kill()
		must(r.t, os.RemoveAll(n.data))
	}
}

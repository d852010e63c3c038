package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is one disturbance. begin makes it and returns a function that ends it.
type fault struct {
	name  string
	begin func(e *episode, random *rand.Rand) (detail string, end func())
}

// faults are the faults from which a schedule is made.
var faults = []fault{
	{"isolate", isolate},
	{"cut peers", cutPeers},
	{"one way", oneWay},
	{"mute", mute},
	{"delay", delay},
	{"lossy", lossy},
	{"flap", flap},
	{"crash", crash},
	{"crash more", crashMore},
	{"drain", drain},
	{"wipe", wipe},
	{"pause", pause},
	{"hung disk", hungDisk},
	{"transfer", transfer},
	{"membership", changeMembers},
	{"lose clients", loseClients},
	{"duplicates", duplicates},
	{"streams end", streamsEnd},
}

// target picks the leader or any node that runs.
func (e *episode) target(random *rand.Rand) *node {
	if leader := e.leader(); leader != nil && random.IntN(2) == 0 {
		return leader
	}
	return e.nodes[random.IntN(3)]
}

// pair picks two of the first nodes.
func (e *episode) pair(random *rand.Rand) (a, b *node) {
	i := random.IntN(3)
	return e.nodes[i], e.nodes[(i+1+random.IntN(2))%3]
}

func isolate(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	e.cuts.around(n, +1)
	return n.id, func() { e.cuts.around(n, -1) }
}

// cutPeers cuts a node off from its peers; clients reach it.
func cutPeers(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	cut := func(by int) {
		for _, other := range e.nodes {
			e.cuts.between(n.id, other.id, by)
		}
	}
	cut(+1)
	return n.id, func() { cut(-1) }
}

func oneWay(e *episode, random *rand.Rand) (string, func()) {
	a, b := e.pair(random)
	e.cuts.cut(a.id, b.id, +1)
	return a.id + " to " + b.id, func() { e.cuts.cut(a.id, b.id, -1) }
}

// mute drops all packets that a node sends to its peers and clients, or all that it gets from them.
func mute(e *episode, random *rand.Rand) (string, func()) {
	n, deaf := e.target(random), random.IntN(2) == 0
	cut := func(by int) {
		for _, host := range e.hosts() {
			if deaf {
				e.cuts.cut(host, n.id, by)
			} else {
				e.cuts.cut(n.id, host, by)
			}
		}
	}
	cut(+1)
	return fmt.Sprintf("%s, deaf: %v", n.id, deaf), func() { cut(-1) }
}

func delay(e *episode, random *rand.Rand) (string, func()) {
	n, by := e.target(random), time.Duration(1+random.IntN(400))*time.Millisecond
	set := func(by time.Duration) {
		for _, host := range e.hosts() {
			if host != n.id {
				e.net.Delay(n.id, host, by)
				e.net.Delay(host, n.id, by/2)
			}
		}
	}
	set(by)
	return fmt.Sprintf("%s by %v", n.id, by), func() { set(e.latency) }
}

func lossy(e *episode, random *rand.Rand) (string, func()) {
	p, seed := 0.05+0.3*random.Float64(), random.Uint64()
	set := func(p float64) {
		for _, a := range e.nodes {
			for _, host := range e.hosts() {
				if host != a.id {
					e.net.Loss(a.id, host, p, seed)
				}
			}
		}
	}
	set(p)
	return fmt.Sprintf("%.0f %% of all that nodes send", 100*p), func() { set(0) }
}

// again calls step at once and after each pause, until the returned function is called.
func again(pause time.Duration, step func()) (end func()) {
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			step()
			select {
			case <-time.After(pause):
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-over }
}

// flap cuts and resets the links of a pair repeatedly.
func flap(e *episode, random *rand.Rand) (string, func()) {
	a, b := e.pair(random)
	every := time.Duration(200+random.IntN(2000)) * time.Millisecond
	cut := false
	toggle := func() {
		if cut = !cut; cut {
			e.cuts.between(a.id, b.id, +1)
			e.net.Reset(a.id, b.id)
		} else {
			e.cuts.between(a.id, b.id, -1)
		}
	}
	end := again(every, toggle)
	return fmt.Sprintf("%s, %s every %v", a.id, b.id, every), func() {
		if end(); cut {
			toggle()
		}
	}
}

// streamsEnd resets all streams between nodes repeatedly. A leader whose port accepts connections keeps its followers.
// A living leader whose port refuses connections may be deposed once in 30 s.
func streamsEnd(e *episode, random *rand.Rand) (string, func()) {
	leader, every, refused := e.leader(), time.Duration(50+random.IntN(1000))*time.Millisecond, random.IntN(2)
	if leader == nil {
		return "no leader", func() {}
	}
	if refused > 0 {
		e.refused.Store(leader.peer())
	}
	deposed, led, due := 0, true, time.Now()
	end := again(20*time.Millisecond, func() {
		if !time.Now().Before(due) {
			due = due.Add(every)
			for _, n := range e.nodes {
				for _, other := range e.nodes {
					e.net.Reset(n.id, other.id)
				}
			}
		}
		leads := leader.live.Status().Leader == leader.id
		if led && !leads {
			deposed++
		}
		led = leads
	})
	return fmt.Sprintf("every %v, %s refused: %d", every, leader.id, refused), func() {
		end()
		e.refused.Store("")
		if e.deposed += deposed; deposed > refused {
			e.failed("%v: %s lives, and was deposed %d times, at most %d allowed", time.Since(e.service.began), leader.id, deposed, refused)
		}
	}
}

func crash(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	n.crash()
	return n.id, n.restart
}

// crashMore kills two of the nodes, or all three.
func crashMore(e *episode, random *rand.Rand) (string, func()) {
	some := e.nodes[random.IntN(2):3]
	for _, n := range some {
		n.crash()
	}
	return fmt.Sprint(len(some)), func() {
		for _, n := range some {
			n.restart()
		}
	}
}

func drain(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	n.drain()
	return n.id, n.start
}

// wipe removes the folder of a node that is down, so that the others have to send it the state.
func wipe(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	n.crash()
	n.wipe()
	return n.id, func() {
		n.restart()
		e.until(n.id+" is back", func() bool { return n.live.Ready() })
	}
}

// pause delays all that a node sends, gets and writes, as if its process was stopped. Its timers continue.
func pause(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	e.cuts.around(n, +1)
	end := hang(n)
	return n.id, func() {
		end()
		e.cuts.around(n, -1)
	}
}

func hungDisk(e *episode, random *rand.Rand) (string, func()) {
	n := e.target(random)
	return n.id, hang(n)
}

// longestHang is less than the 30 s after which a node with a hung disk ends its process: this service would not
// start the process again.
const longestHang = 25 * time.Second

// hang makes the disk of a node hang until the returned function is called, for at most longestHang.
func hang(n *node) (end func()) {
	n.disk.hang(true)
	timer := time.AfterFunc(longestHang, func() { n.disk.hang(false) })
	return func() {
		timer.Stop()
		n.disk.hang(false)
	}
}

// transfer hands leadership over repeatedly.
func transfer(e *episode, random *rand.Rand) (string, func()) {
	times := 1 + random.IntN(6)
	for range times {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = e.nodes[random.IntN(3)].live.TransferLeadership(ctx, "") // fails if there is no other node
		cancel()
	}
	return fmt.Sprintf("%d times", times), func() {}
}

// changeMembers adds a fourth node, and removes it at the end of the fault.
func changeMembers(e *episode, random *rand.Rand) (string, func()) {
	n4, through := e.nodes[3], e.nodes[random.IntN(3)]
	n4.start()
	change := func(change func(context.Context) error) func() bool {
		return func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			return change(ctx) == nil
		}
	}
	e.until("n4 is added", change(func(ctx context.Context) error { return through.live.AddMember(ctx, "n4", "n4:8711") }))
	return "n4, through " + through.id, func() {
		e.until("n4 is removed", change(func(ctx context.Context) error { return through.live.RemoveMember(ctx, "n4") }))
		n4.crash()
		e.cuts.around(n4, -1)
		n4.wipe()
	}
}

// loseClients cuts clients off from all nodes, longer than their leases live.
func loseClients(e *episode, random *rand.Rand) (string, func()) {
	first, count := random.IntN(clients), 1+random.IntN(3)
	cut := func(by int) {
		for i := range count {
			for _, n := range e.nodes {
				e.cuts.between(clientHost((first+i)%clients), n.id, by)
			}
		}
	}
	cut(+1)
	return fmt.Sprintf("%d from c%d on", count, first), func() {
		time.Sleep(time.Duration(random.IntN(30)) * time.Second) // virtual: how long they are away beyond that
		cut(-1)
	}
}

// duplicates makes the clients' transports deliver some requests twice or late, and lose replies.
func duplicates(e *episode, _ *rand.Rand) (string, func()) {
	e.unreliable.Store(true)
	return "", func() { e.unreliable.Store(false) }
}

// hosts returns the names of all hosts of the network.
func (e *episode) hosts() (names []string) {
	for _, n := range e.nodes {
		names = append(names, n.id)
	}
	for i := range clients {
		names = append(names, clientHost(i))
	}
	return names
}

// alone has the faults that stop nodes or change the members. They are not combined with another fault.
var alone = map[string]bool{"crash": true, "crash more": true, "drain": true, "wipe": true, "membership": true, "transfer": true, "streams end": true}

// disturb makes and heals faults until the episode ends. In a short episode the pauses between them are shorter.
func (e *episode) disturb(random *rand.Rand, lasts time.Duration) {
	rest := max(int(lasts.Seconds())/16, 10)
	for until := e.service.began.Add(lasts); time.Now().Before(until); {
		time.Sleep(time.Duration(5+random.IntN(rest)) * time.Second) // virtual: between faults
		list := []fault{faults[random.IntN(len(faults))]}
		if second := faults[random.IntN(len(faults))]; !alone[list[0].name] && !alone[second.name] && random.IntN(3) == 0 {
			list = append(list, second)
		}
		e.hurry(true)
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) // virtual: until clients are busy
		var ends []func()
		for _, f := range list {
			detail, end := f.begin(e, random)
			e.note("%s %s", f.name, detail)
			e.made[f.name]++
			ends = append(ends, end)
		}
		lasts := time.Duration(100+random.IntN(4000)) * time.Millisecond
		if random.IntN(3) == 0 {
			lasts += time.Duration(random.IntN(25)) * time.Second
		}
		time.Sleep(lasts) // virtual: how long it lasts
		for _, end := range ends {
			end()
		}
		e.note("healed")
		e.ready()
		time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond) // virtual: clients go on
		e.hurry(false)
	}
}

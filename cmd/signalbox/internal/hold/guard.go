//go:build unix

package hold

import (
	"os"
	"syscall"
	"time"
)

const (
	// pollEvery is how often guard checks whether the group has ended. The system reports the end of children only, not
	// of their children.
	pollEvery = 10 * time.Millisecond
	// killedWithin is how long guard waits for the end of the group after KILL. Only a process that hangs in the kernel
	// takes longer, and no signal can end it.
	killedWithin = 2 * time.Second
)

// watched is the part of *client.Lease and *items.Leadership that guard needs. The session's margin is grace + margin,
// so that Lost is closed at least that long before Deadline.
type watched interface {
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
}

// child is a command and all processes that it has started, in one process group.
type child interface {
	signal(s syscall.Signal) // sends to all remaining processes of the group
	exited() <-chan struct{} // closed when the command has ended
	gone() bool              // whether the command and its whole group have ended
	status() int             // exit status of the command, as a shell shows it; valid after watch
}

// guard watches a command while permits or an item are held. It kills the whole group at the latest margin before the
// deadline, since the cluster may grant the permits or the item to another client at the deadline. If the machine was
// suspended until after that time, guard kills the group at once.
type guard struct {
	held    watched
	child   child
	signals <-chan os.Signal // relayed to the group
	grace   time.Duration    // between TERM and KILL
	margin  time.Duration    // time between KILL and the deadline, for the processes to end
}

// watch blocks until the command and its group have ended. If the lease was lost before the command ended, watch
// returns the reason.
func (g *guard) watch() error {
	for {
		select {
		case s := <-g.signals:
			g.child.signal(s.(syscall.Signal))
			continue
		case <-g.child.exited():
		case <-g.held.Lost():
		}
		lost := g.held.Err()
		if !g.child.gone() {
			g.end()
		}
		return lost
	}
}

// end ends the group with TERM, and after the grace with KILL.
func (g *guard) end() {
	g.child.signal(syscall.SIGTERM)
	g.child.signal(syscall.SIGCONT) // so that a stopped process gets TERM
	askedAt := time.Now()
	// KILL must be sent at least g.margin before the deadline, even if that shortens the grace: end may be called late.
	// Each poll reads the deadline again, because a suspension of the machine brings it closer.
	if g.gone(func() bool {
		return time.Since(askedAt) >= g.grace || time.Until(g.held.Deadline()) <= g.margin+pollEvery
	}) {
		return
	}
	g.child.signal(syscall.SIGKILL)
	killed := time.Now()
	g.gone(func() bool { return time.Since(killed) >= killedWithin })
}

// gone waits until the group has ended or late returns true. It reports whether the group has ended.
func (g *guard) gone(late func() bool) bool {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for !g.child.gone() {
		if late() {
			return false
		}
		select {
		case <-poll.C:
		case s := <-g.signals:
			g.child.signal(s.(syscall.Signal))
		}
	}
	return true
}

//go:build unix

package hold

import (
	"os"
	"syscall"
	"time"
)

const (
	// pollEvery is how often guard checks whether the group has ended: the system does not notify it of
	// processes that are not its children.
	pollEvery = 10 * time.Millisecond
	// killedWithin is how long a group may take to be gone after KILL. Only a process that hangs in the kernel
	// takes longer, and no further signal helps against that.
	killedWithin = 2 * time.Second
)

// watched is the part of *client.Lease and *items.Leadership that guard needs. Lost must close grace + margin before
// Deadline at the latest: the session's margin is their sum.
type watched interface {
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
}

// child is a command with all processes that it started: a process group.
type child interface {
	signal(s syscall.Signal) // sends to every process of the group, if there is one left
	exited() <-chan struct{} // closed when the command itself has ended
	gone() bool              // the command has ended, and so has its whole group
	status() int             // of the command, as a shell counts it; for after watch
}

// guard watches over a command while permits or an item are held. It kills the whole group by deadline -
// margin, since the cluster may grant them to another client at the deadline. After a suspension of the machine
// that passed the deadline it kills the group at once.
type guard struct {
	held    watched
	child   child
	signals <-chan os.Signal // relayed to the group
	grace   time.Duration    // between TERM and KILL
	margin  time.Duration    // between KILL and the deadline, for KILL to be carried out
}

// watch blocks until the command and all of its group have ended. It returns the reason of a loss before the
// command's end.
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

// end ends the group: TERM, then KILL.
func (g *guard) end() {
	g.child.signal(syscall.SIGTERM)
	g.child.signal(syscall.SIGCONT) // a stopped process would not notice
	askedAt := time.Now()
	// The grace ends by the margin before the deadline, however late end was called, and also if the
	// machine is suspended during it, which moves the deadline.
	if g.gone(func() bool {
		return time.Since(askedAt) >= g.grace || time.Until(g.held.Deadline()) <= g.margin+pollEvery
	}) {
		return
	}
	g.child.signal(syscall.SIGKILL)
	killed := time.Now()
	g.gone(func() bool { return time.Since(killed) >= killedWithin })
}

// gone waits until the group has ended, or late reports true, and reports whether the group has ended.
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

package main

import (
	"os"
	"syscall"
	"time"
)

const (
	// lookEvery is how often guard looks whether a group that is to end has ended:
	// nothing tells it of processes that aren't its children.
	lookEvery = 10 * time.Millisecond
	// killedWithin is how long a group may take to be gone after KILL. Only a process
	// that hangs in the kernel takes longer, and nothing else can be done about it.
	killedWithin = 2 * time.Second
)

// watched is what guard needs of a lease; *client.Lease has it. Lost must close
// grace + margin before Deadline at the latest: the lease's own margin is their sum.
type watched interface {
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
}

// child is a command with all that it has started: a process group.
type child interface {
	signal(s syscall.Signal) // sends to every process of the group; may find none
	exited() <-chan struct{} // closed when the command itself has ended
	gone() bool              // the command has ended, and nothing of its group is left
	status() int             // of the command, as a shell counts it; for after watch
}

// guard watches over a command while a lease is held. By deadline - margin at the
// latest, on this process's own monotonic clock, nothing of the command runs any
// more: the cluster grants nothing anew before the deadline.
type guard struct {
	lease   watched
	child   child
	signals <-chan os.Signal // handed on to the group
	grace   time.Duration    // between TERM and KILL
	margin  time.Duration    // between KILL and the lease's deadline, for KILL to be carried out
}

// watch blocks until the command and all of its group have ended. It answers why the
// lease was lost, if that was before the command's own end.
func (g *guard) watch() error {
	for {
		select {
		case s := <-g.signals:
			g.child.signal(s.(syscall.Signal))
			continue
		case <-g.child.exited():
		case <-g.lease.Lost():
		}
		lost := g.lease.Err()
		if !g.child.gone() {
			g.end()
		}
		return lost
	}
}

// end ends what runs: TERM, then KILL.
func (g *guard) end() {
	g.child.signal(syscall.SIGTERM)
	g.child.signal(syscall.SIGCONT) // a stopped process would not notice
	if g.goneBy(g.killAt()) {
		return
	}
	g.child.signal(syscall.SIGKILL)
	g.goneBy(time.Now().Add(killedWithin))
}

// killAt is when the grace is over: with a lease that was not renewed in time just
// before the cluster may grant anew, whatever the hour is now.
func (g *guard) killAt() time.Time {
	at := time.Now().Add(g.grace)
	if latest := g.lease.Deadline().Add(-g.margin); latest.Before(at) {
		return latest
	}
	return at
}

// goneBy waits until the group has ended, or for so long, and tells which.
func (g *guard) goneBy(late time.Time) bool {
	timer := time.NewTimer(time.Until(late))
	defer timer.Stop()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for !g.child.gone() {
		select {
		case <-again.C:
		case s := <-g.signals:
			g.child.signal(s.(syscall.Signal))
		case <-timer.C:
			return g.child.gone()
		}
	}
	return true
}

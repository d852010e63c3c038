package supervisor

import (
	"context"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// Supervisor is the service manager that started this process, if there is one.
type Supervisor struct {
	send     func(state string) // no effect without a service manager
	watchdog time.Duration      // the service manager ends the process after this time without a notification; 0: never
}

// Of returns the service manager that the environment names. lookup reads a variable. Under a service manager, SIGHUP
// does not end the process, even if there is no file to read again.
func Of(lookup func(string) (string, bool), log hclog.Logger) Supervisor {
	socket, _ := lookup("NOTIFY_SOCKET")
	if socket == "" {
		return Supervisor{send: func(string) {}}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	s := Supervisor{send: func(state string) {
		conn, err := net.Dial("unixgram", socket)
		if err == nil {
			_, err = conn.Write([]byte(state))
			conn.Close()
		}
		if err != nil {
			log.Error("the supervisor can't be notified", "socket", socket, "error", err)
		}
	}}
	limit, _ := lookup("WATCHDOG_USEC")
	process, _ := lookup("WATCHDOG_PID")
	if us, err := strconv.ParseInt(limit, 10, 64); err == nil && (process == "" || process == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(us) * time.Microsecond
	}
	return s
}

// Ready reports that the process serves.
func (s Supervisor) Ready() { s.send("READY=1") }

// Stopping reports that the process is about to end.
func (s Supervisor) Stopping() { s.send("STOPPING=1") }

// Watch reports that the process is alive, three times per watchdog time, until ctx ends. It skips a report if alive
// returns false or does not return.
func (s Supervisor) Watch(ctx context.Context, alive func() bool) {
	for s.watchdog > 0 && wake.Pause(ctx, s.watchdog/3) == nil {
		made := false
		if wake.Await(ctx, func() error { made = alive(); return nil }) == nil && made {
			s.send("WATCHDOG=1")
		}
	}
}

// Progress tells whether a node makes progress: its state and its checks can be read, and it applies committed entries.
// A node without a leader counts as making progress, since a restart would not help.
type Progress struct {
	node    *cluster.Node
	applied uint64 // at the last call of Made
}

// NewProgress returns the progress of a node. Only one goroutine may use it.
func NewProgress(node *cluster.Node) *Progress { return &Progress{node: node} }

// Made reports whether the node makes progress. It blocks while a lock of the node is held.
func (p *Progress) Made() bool {
	p.node.Checks()
	p.node.View(func(*fsm.Machine) {})
	return p.since(p.node.Status())
}

// since compares the node with its state at the last call of Made.
func (p *Progress) since(now cluster.Status) bool {
	moved := now.AppliedIndex != p.applied
	p.applied = now.AppliedIndex
	return moved || now.AppliedIndex >= now.CommitIndex
}

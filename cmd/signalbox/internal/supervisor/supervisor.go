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
	send     func(state string) // has no effect without a supervisor
	watchdog time.Duration      // after which the supervisor ends a silent process; 0: never
}

// Of returns the supervisor that the environment names, which lookup reads. Under a supervisor, SIGHUP never ends the
// process, also if it has no file to read again.
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

// Ready notifies the supervisor that the process serves.
func (s Supervisor) Ready() { s.send("READY=1") }

// Stopping notifies it that the process is about to end.
func (s Supervisor) Stopping() { s.send("STOPPING=1") }

// Watch reports to the supervisor that the process is alive, three times per limit of its watchdog, until ctx
// ends. It is silent while alive returns false or does not return.
func (s Supervisor) Watch(ctx context.Context, alive func() bool) {
	for s.watchdog > 0 && wake.Pause(ctx, s.watchdog/3) == nil {
		made := false
		if wake.Await(ctx, func() error { made = alive(); return nil }) == nil && made {
			s.send("WATCHDOG=1")
		}
	}
}

// Progress tells whether a node goes on: its state and its checks can be read, and it applies committed
// entries. A node without a leader goes on as well: its end would not help.
type Progress struct {
	node    *cluster.Node
	applied uint64 // at the last call of Made
}

// NewProgress returns the progress of a node, for one goroutine.
func NewProgress(node *cluster.Node) *Progress { return &Progress{node: node} }

// Made reports whether the node goes on. It blocks while a lock of the node is held.
func (p *Progress) Made() bool {
	p.node.Checks()
	p.node.View(func(*fsm.Machine) {})
	return p.since(p.node.Status())
}

// since compares a node with its state at the last call of Made.
func (p *Progress) since(now cluster.Status) bool {
	moved := now.AppliedIndex != p.applied
	p.applied = now.AppliedIndex
	return moved || now.AppliedIndex >= now.CommitIndex
}

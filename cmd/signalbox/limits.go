package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/fsm"
)

// boundLimits refuses limits that would allow log entries which take too long to apply.
func boundLimits(m *fsm.Limits) error {
	limits := fsm.MaxLimits()
	for _, limit := range []struct {
		flag           string
		value, ceiling int64
	}{
		{"max-session-leases", m.SessionLeases, limits.SessionLeases},
		{"max-session-waiting", m.SessionWaiting, limits.SessionWaiting},
		{"max-wait-list", m.WaitList, limits.WaitList},
	} {
		if limit.value > limit.ceiling {
			return fmt.Errorf("--%s: %d is more than %d, which is what every node can end in one step without a pause", limit.flag, limit.value, limit.ceiling)
		}
	}
	return nil
}

// addLimits adds a flag for every limit. The defaults are in c. A flag refuses values below 1.
func addLimits(flags *pflag.FlagSet, c *config) {
	limits := pflag.NewFlagSet("limits", pflag.ContinueOnError)
	limits.SortFlags = false
	m, x := &c.machine, &c.exchange
	limits.Int64Var(&m.Semaphores, "max-semaphores", m.Semaphores, "semaphores")
	limits.Int64Var(&m.Sessions, "max-sessions", m.Sessions, "sessions")
	limits.Int64Var(&m.SessionLeases, "max-session-leases", m.SessionLeases, "leases of one session")
	limits.Int64Var(&m.SessionWaiting, "max-session-waiting", m.SessionWaiting, "waiting requests of one session")
	limits.Int64Var(&m.Leases, "max-leases", m.Leases, "leases in all")
	limits.Int64Var(&m.Waiting, "max-waiting", m.Waiting, "waiting requests in all")
	limits.Int64Var(&m.Queue, "max-queue", m.Queue, "waiting requests on one semaphore")
	limits.Int64Var(&m.WaitList, "max-wait-list", m.WaitList, "semaphores on one session's wait list")
	limits.Int64Var(&m.Keys, "max-keys", m.Keys, "idempotency keys that are remembered")
	limits.Var((*size)(&m.KeyBytes), "max-key-bytes", "memory of these keys and their outcomes")
	limits.Var((*size)(&x.BodyBytes), "max-body", "a request's body")
	limits.Var((*size)(&c.native.BatchBodyBytes), "max-batch-body", "the body of a batch")
	limits.Var((*size)(&c.native.BackupBytes), "max-backup", "a backup to restore")
	limits.IntVar(&c.native.BatchSize, "max-batch", c.native.BatchSize, "operations in a batch; one that lists semaphores counts as many")
	limits.DurationVar(&x.MaxWait, "max-wait", x.MaxWait, "how long one request may wait")
	limits.DurationVar(&x.BodyTimeout, "body-timeout", x.BodyTimeout, "for a body to arrive, and for a reply to leave")
	addIdleTimeout(limits, &c.idleTimeout)
	limits.IntVar(&c.connections, "max-connections", c.connections, "connections to the API; some more are kept for probes")
	limits.Var((*size)(&x.BodyMemory), "max-body-memory", "what bodies that are being received may take in all, beyond 4KiB each")
	limits.Var((*size)(&x.ReplyMemory), "max-reply-memory", "what replies that clients have not taken may take in all, beyond 16KiB each")
	limits.IntVar(&x.MaxWatchers, "max-watchers", x.MaxWatchers, "streams of events and blocking queries that may be open on this node")
	limits.Int64Var(&c.historyEvents, "event-history", c.historyEvents, "events that this node keeps for clients that follow them")
	limits.Var(&c.historyBytes, "event-history-size", "memory of these events")
	limits.IntVar(&c.metricsSemaphores, "metrics-semaphores", c.metricsSemaphores, "semaphores that have metrics each; the others share some")
	limits.IntVar(&c.queue, "max-proposals", c.queue, "commands waiting for their place in the log")
	limits.VisitAll(func(limit *pflag.Flag) { limit.Value = positive{limit.Value} }) // state: pflag has no other way to wrap it
	flags.AddFlagSet(limits)
}

// addIdleTimeout adds the flag for idle connections of a node or a proxy. The default is in timeout.
func addIdleTimeout(flags *pflag.FlagSet, timeout *time.Duration) {
	flags.DurationVar(timeout, "idle-timeout", *timeout, "how long a connection to the API stays open without a request; longer than a balancer keeps its own")
	idle := flags.Lookup("idle-timeout")
	idle.Value = positive{idle.Value} // state: of this set
}

// positive is a number, size or duration above 0.
type positive struct{ pflag.Value }

// Set implements pflag.Value.
func (p positive) Set(text string) error {
	if err := p.Value.Set(text); err != nil {
		return err
	}
	if shown := p.String(); strings.HasPrefix(shown, "-") || strings.Trim(shown, "0sB") == "" {
		return errors.New("it must be above 0")
	}
	return nil
}

// size is the value of a flag in bytes. Its text is, for example, 65536, 64KiB, 1MiB or 2GiB.
type size int64

var sizeUnits = []struct {
	name  string
	shift int
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits, shift := strings.TrimSpace(text), 0
	for _, unit := range sizeUnits {
		if rest, ok := strings.CutSuffix(digits, unit.name); ok {
			digits, shift = strings.TrimSpace(rest), unit.shift
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size such as 65536, 64KiB or 1GiB", text)
	}
	*s = size(n << shift)
	return nil
}

// String implements pflag.Value. It uses the largest unit that gives a whole number.
func (s *size) String() string {
	for _, unit := range sizeUnits {
		if n := int64(*s) >> unit.shift; n > 0 && n<<unit.shift == int64(*s) {
			return strconv.FormatInt(n, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*s), 10) + "B"
}

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }

// ownDescriptors is the number of open files of a node besides its clients' connections: for its folder, its peers, and
// the connections that are reserved for probes.
const ownDescriptors = 240

// fitConnections lowers --max-connections to the process's limit of open files, divided by the number of its nodes, and
// logs the change. Connections beyond that limit would keep out probes and peers too.
func (c *config) fitConnections(descriptors uint64, log hclog.Logger) {
	nodes := uint64(max(1, c.nodesHere))
	room := descriptors / nodes
	if room >= uint64(c.connections)+ownDescriptors {
		return
	}
	fits := max(ownDescriptors, int(room)) - ownDescriptors
	fits = max(fits, 16)
	log.Warn("the limit of open files does not allow --max-connections; raise it (ulimit -n, LimitNOFILE)", "limit", descriptors,
		"needed", nodes*(uint64(c.connections)+ownDescriptors), "max-connections", c.connections, "taken", fits)
	c.connections = fits
}

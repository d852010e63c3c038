package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// mostWaitList is what --max-wait-list may be: all entries of a list are delivered in
// one result, each with a name of up to 512 bytes and some numbers, and a frame
// between nodes has up to 4 MiB.
const mostWaitList = 4096

// addLimits gives every limit its flag; the defaults are what c holds. None may be
// below 1: nothing would work.
func addLimits(flags *pflag.FlagSet, c *config) {
	limits := pflag.NewFlagSet("limits", pflag.ContinueOnError)
	limits.SortFlags = false
	m, r := &c.machine, &c.requests
	limits.Int64Var(&m.Semaphores, "max-semaphores", m.Semaphores, "semaphores")
	limits.Int64Var(&m.Sessions, "max-sessions", m.Sessions, "sessions")
	limits.Int64Var(&m.SessionLeases, "max-session-leases", m.SessionLeases, "leases of one session")
	limits.Int64Var(&m.SessionWaiting, "max-session-waiting", m.SessionWaiting, "waiting requests of one session")
	limits.Int64Var(&m.Leases, "max-leases", m.Leases, "leases in all")
	limits.Int64Var(&m.Waiting, "max-waiting", m.Waiting, "waiting requests in all")
	limits.Int64Var(&m.Queue, "max-queue", m.Queue, "waiting requests on one semaphore")
	limits.Int64Var(&m.WaitList, "max-wait-list", m.WaitList, "semaphores on one session's wait list")
	limits.Int64Var(&m.Keys, "max-keys", m.Keys, "idempotency keys that are remembered")
	limits.Var((*size)(&m.KeyBytes), "max-key-bytes", "what they and their outcomes may take")
	limits.Var(&r.body, "max-body", "a request's body")
	limits.Var(&r.batchBody, "max-batch-body", "the body of a batch")
	limits.IntVar(&r.batch, "max-batch", r.batch, "operations in a batch; one that lists semaphores counts as many")
	limits.DurationVar(&r.wait, "max-wait", r.wait, "how long one request may wait")
	limits.DurationVar(&r.bodyTimeout, "body-timeout", r.bodyTimeout, "for a body to arrive, and for a reply to leave")
	limits.IntVar(&r.connections, "max-connections", r.connections, "connections to the API; some more are kept for probes")
	limits.Var(&r.bodies, "max-body-memory", "what bodies that are being received may take in all, beyond 4KiB each")
	limits.Var(&r.replies, "max-reply-memory", "what replies that clients have not taken may take in all, beyond 16KiB each")
	limits.IntVar(&r.watchers, "max-watchers", r.watchers, "streams of events and blocking queries that may be open on this node")
	limits.Int64Var(&c.historyEvents, "event-history", c.historyEvents, "events that this node keeps for those who follow them")
	limits.Var(&c.historyBytes, "event-history-size", "what they may take")
	limits.IntVar(&c.queue, "max-proposals", c.queue, "commands waiting for their place in the log")
	limits.VisitAll(func(limit *pflag.Flag) { limit.Value = positive{limit.Value} })
	flags.AddFlagSet(limits)
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

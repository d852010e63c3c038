package calls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

// reportAfter is the time without a reply from any node after which the outage is logged.
const reportAfter = 2 * time.Second

// outage logs once that no node replies, and again only after a node has replied. For example, a person sees by that
// line why a patient call is still under way.
type outage struct {
	log   *slog.Logger
	nodes *nodes.List

	mu       sync.Mutex
	replied  time.Time // latest reply or refusal
	since    time.Time // first attempt after it that had no reply; zero: no such attempt
	failures int       // attempts since then
	logged   bool
}

// noteAttempt counts an attempt that began at a time and ended with err. Its call goes on until a deadline.
func (o *outage) noteAttempt(began time.Time, err error, deadline time.Time) {
	var refusal *Refusal
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if err == nil || errors.As(err, &refusal) {
		o.replied, o.since, o.failures, o.logged = now, time.Time{}, 0, false
		return
	}
	if o.failures++; o.failures == 1 {
		o.since = began
		if o.replied.After(began) {
			o.since = o.replied
		}
	}
	if o.logged || o.failures < o.nodes.Len() || now.Sub(o.since) < reportAfter || !now.Before(deadline) {
		return
	}
	o.logged = true
	o.log.Warn("no node replies, trying on", "nodes", o.nodes.Hosts(), "error", err, "until", deadline.Format(time.DateTime))
}

// deadlineOf returns when a call is given up at the earliest: at the ctx's deadline, or GiveUpAfter from now.
func (c *Caller) deadlineOf(ctx context.Context) time.Time {
	if deadline, bounded := ctx.Deadline(); bounded {
		return deadline
	}
	return time.Now().Add(c.cfg.GiveUpAfter)
}

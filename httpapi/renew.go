package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// leasesWithin bounds how long a renewal waits for this node's own state to reach
// the renewal's entry. The renewal itself is done by then: a node that is behind
// leaves the leases out.
const leasesWithin = 200 * time.Millisecond

// renewedBody is the reply to a renewal; with ?leases=true it has what the session
// holds.
type renewedBody struct {
	lifeBody
	Leases *[]heldBody `json:"leases,omitempty"`
}

// renewSession renews a session and, if asked to, shows its leases: the client learns
// in the same request that an operator revoked one or that a semaphore was deleted.
func (h *Handler) renewSession(c echo.Context) error {
	p, err := h.readParams(c, &opRenew)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	reply, err := h.node.Do(ctx, opRenew.call(p, h.node))
	if err != nil {
		return err
	}
	h.setIndex(c, reply.Index)
	a := h.conclude(&opRenew, p, &reply)
	if life, is := a.body.(lifeBody); is && p.leases && a.status == http.StatusOK {
		leases, bytes := h.leasesAt(ctx, &reply)
		defer h.replies.give(bytes)
		a.body = renewedBody{life, leases}
	}
	return h.render(c, a)
}

// leasesAt returns what the session of a reply holds, nil if this node's state has
// not come to the reply's entry, or if there is no room to make so large a reply. The
// bytes are reserved, for the caller to give back.
func (h *Handler) leasesAt(ctx context.Context, reply *cluster.Reply) (_ *[]heldBody, bytes int64) {
	ctx, cancel := context.WithTimeout(ctx, leasesWithin)
	defer cancel()
	if _, err := h.node.Read(ctx, cluster.Consistency{Stale: true, MinIndex: reply.Index}); err != nil {
		return nil, 0
	}
	var held []fsm.LeaseView
	h.node.View(func(m *fsm.Machine) { held = m.Leases(reply.Session) })
	for i := range held {
		bytes += int64(memberBytes + len(held[i].Semaphore) + len(held[i].Reason))
	}
	if bytes = max(0, bytes-freeReplyBytes); !h.replies.take(bytes) {
		return nil, 0
	}
	leases := make([]heldBody, len(held))
	for i := range held {
		leases[i] = heldBody{viewedLease(&held[i], reply.NowMS), revokedBody{held[i].Revoked, held[i].Reason}}
	}
	return &leases, bytes
}

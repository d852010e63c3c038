package exchange

import (
	"context"
	"errors"
	"io"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/audit"
)

// audited is a Node that writes the changes of every API, and the attempts of changes, to the audit log. Only State is
// embedded, because its methods change no state.
type audited struct {
	State
	node Node
	log  *audit.Log
}

// write adds the identity and the outcome to a record, and writes it. It returns err.
func (a *audited) write(ctx context.Context, r audit.Record, err error) error {
	request := audit.Of(ctx)
	var denied *access.Denied
	r.Identity, r.Remote, r.Request = access.Of(ctx).Name, request.Remote, request.ID
	switch {
	case errors.Is(err, context.Canceled):
		r.Outcome = "hung-up" // the client hung up; the change may have been made
	case errors.Is(err, access.ErrUnknownToken):
		r.Outcome = "token-ended" // the token ended; the change may have been made
	case errors.As(err, &denied):
		r.Outcome, r.Reason = "forbidden", denied.Error()
	case err != nil:
		r.Outcome = ProblemOf(err).Code
	case r.Outcome == "":
		r.Outcome = fsm.OK.String()
	}
	a.log.Write(r)
	return err
}

// command writes a command, unless it is routine. ttlMS is the session's ttl before a renewal; 0: unknown.
func (a *audited) command(ctx context.Context, c fsm.Command, ttlMS int64, reply *calls.Reply, err error) {
	result := &reply.Result
	if len(result.Each) == 1 { // a renewal: Each has the result of this renewal
		result = &result.Each[0]
	}
	if err == nil && routine(c, ttlMS, result) {
		return
	}
	r := audit.Record{Operation: c.Op().String(), Semaphores: fsm.Names(c), Index: reply.Index, Replayed: reply.Replayed,
		TookOver: result.TookOver, Reason: result.Why().Reason}
	if len(r.Semaphores) == 1 {
		r.Semaphore, r.Semaphores, r.Group = r.Semaphores[0], nil, groupIn(c)
	}
	if c.Op().Object() == fsm.ObjectItem {
		r.Item, r.Semaphore = r.Semaphore, ""
	}
	id := fsm.SessionOf(c)
	if id == 0 {
		id = result.Session
	}
	if id != 0 {
		r.Session = FormatSession(id)
	}
	if reason, ok := fsm.Reason(c); ok {
		r.Reason = reason
	}
	if err == nil {
		r.Outcome = outcomeOf(c, result).String()
	}
	_ = a.write(ctx, r, err)
}

// groupIn returns the group that a command names, or "".
func groupIn(c fsm.Command) string {
	switch c := c.(type) {
	case fsm.GroupPut:
		return c.Group
	case fsm.Acquire:
		return c.Group
	case fsm.AcquireOnce:
		return c.Group
	case fsm.Down:
		return c.Group
	case fsm.Release:
		return c.Group
	case fsm.ResizeLease:
		return c.Group
	case fsm.RevokeLease:
		return c.Group
	case fsm.ListAdd:
		return c.Group
	case fsm.ListRemove:
		return c.Group
	}
	return ""
}

// routine reports whether a command does not matter to an auditor. Two kinds of command are routine: a delivery that
// found no permit, and a granted renewal that keeps the session's ttl, for example a heartbeat of throttle. There are as
// many of them as of all other commands. A renewal with another ttl is not routine, because a short ttl may end the
// session. A renewal that takes a session over is not routine, because it changes who may use the session.
func routine(c fsm.Command, ttlMS int64, result *fsm.Result) bool {
	if renew, ok := c.(fsm.Renew); ok {
		if len(renew.Renewals) != 1 {
			return false
		}
		newTTLMS := renew.Renewals[0].TTLMS
		return result.Code == fsm.OK && !result.TookOver && (newTTLMS == fsm.KeepTTL || newTTLMS == ttlMS && newTTLMS > 0)
	}
	return result.Code == fsm.NothingReady
}

// ttlBefore returns the ttl of the session that a command renews, from this node's state, or 0.
func (a *audited) ttlBefore(c fsm.Command) (ttlMS int64) {
	if renew, ok := c.(fsm.Renew); ok && len(renew.Renewals) == 1 && renew.Renewals[0].TTLMS > 0 {
		a.View(func(m *fsm.Machine) { ttlMS = m.TTLOf(renew.Renewals[0].Session) })
	}
	return ttlMS
}

// outcomeOf returns the code of a result for the audit log. If an identity ends a session that it does not own, the
// result is OK although no session ends; outcomeOf then returns UnknownSession.
func outcomeOf(c fsm.Command, result *fsm.Result) fsm.Code {
	if _, ok := c.(fsm.EndSession); ok && result.Code == fsm.OK && !result.Found {
		return fsm.UnknownSession
	}
	return result.Code
}

// Do implements Commands.
func (a *audited) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	ttlMS := a.ttlBefore(call.Command)
	reply, err := a.node.Do(ctx, call)
	a.command(ctx, call.Command, ttlMS, reply, err)
	return reply, err
}

// DoMany implements Commands.
func (a *audited) DoMany(ctx context.Context, list []calls.Call) ([]calls.Reply, []error) {
	replies, errs := a.node.DoMany(ctx, list)
	if len(replies) == len(list) && len(errs) == len(list) {
		for i := range list {
			a.command(ctx, list[i].Command, 0, &replies[i], errs[i]) // ttl unknown: an earlier command in the list may change it
		}
	}
	return replies, errs
}

// DrawSession implements Commands.
func (a *audited) DrawSession() uint64 { return a.node.DrawSession() }

// Status implements Members.
func (a *audited) Status() cluster.Status { return a.node.Status() }

// AddMember implements Members.
func (a *audited) AddMember(ctx context.Context, id, address string) error {
	return a.write(ctx, audit.Record{Operation: "add-member", Member: id, Address: address}, a.node.AddMember(ctx, id, address))
}

// RemoveMember implements Members.
func (a *audited) RemoveMember(ctx context.Context, id string) error {
	return a.write(ctx, audit.Record{Operation: "remove-member", Member: id}, a.node.RemoveMember(ctx, id))
}

// TransferLeadership implements Members.
func (a *audited) TransferLeadership(ctx context.Context, id string) error {
	return a.write(ctx, audit.Record{Operation: "transfer-leadership", Member: id}, a.node.TransferLeadership(ctx, id))
}

// RaiseLevel implements Members.
func (a *audited) RaiseLevel(ctx context.Context, level uint32) error {
	return a.write(ctx, audit.Record{Operation: fsm.OpRaiseLevel.String(), Level: level}, a.node.RaiseLevel(ctx, level))
}

// Backup implements Backups. It is audited because its caller gets the whole state.
func (a *audited) Backup(ctx context.Context) (*backup.Backup, error) {
	b, err := a.node.Backup(ctx)
	r := audit.Record{Operation: "backup"}
	if err == nil {
		r.Index = b.Header.Index
	}
	return b, a.write(ctx, r, err)
}

// Restore implements Backups.
func (a *audited) Restore(ctx context.Context, from io.Reader, order backup.Order) (backup.Restored, error) {
	done, err := a.node.Restore(ctx, from, order)
	sessions := "keep"
	if order.EndSessions {
		sessions = "end"
	}
	return done, a.write(ctx, audit.Record{Operation: "restore-backup", Index: done.Index, Sessions: sessions}, err)
}

// Checks implements Members.
func (a *audited) Checks() []cluster.Check { return a.node.Checks() }

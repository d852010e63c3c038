package consul

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// put is a PUT of a key.
type put struct {
	query
	key        string
	value      string
	flags, cas uint64
}

// readPut reads a PUT. It checks the parts in the order in which Consul checks them.
func (k keys) readPut(c echo.Context) (p put, err error) {
	if p.query, err = k.readQuery(c); err != nil {
		return p, err
	}
	p.key = keyOf(c)
	return p, firstError(p.checkNamespace, required(p.key, "key name"), p.atMostOne("cas", "acquire", "release"),
		p.readUint64("flags", &p.flags), p.readUint64("cas", &p.cas), func() (err error) {
			p.value, err = k.readValue(c)
			return err
		}, p.checkDatacenter, validKey(p.key))
}

// readValue reads the body: any bytes, up to the size of the largest value, whatever --max-body is.
func (k keys) readValue(c echo.Context) (string, error) {
	data, err := k.Bodies.Receive(c, fsm.MaxValueBytes)
	var p *exchange.Problem
	if errors.As(err, &p) && p.Code == "too-large" {
		size := max(c.Request().ContentLength, fsm.MaxValueBytes+1) // the size of a chunked body is unknown
		return "", exchange.Sentence(p.Status, fmt.Sprintf("Request body(%d bytes) too large, max size: %d bytes.", size, fsm.MaxValueBytes))
	}
	return string(data), err
}

// putKey writes a key, and gives it to a session or takes it from one.
func (k keys) putKey(c echo.Context) error {
	p, err := k.readPut(c)
	if err != nil {
		return err
	}
	switch { // the body keeps its memory to the end, since a contender's value may wait for seconds
	case p.has("acquire"):
		return k.acquire(c, &p)
	case p.has("release"):
		session := p.values.Get("release")
		if session == "" {
			return errMissingSession
		}
		id, _ := parseSession(session) // 0 is held by no session
		return k.outcome(c, &p.query, fsm.ItemRelease{Name: p.key, Value: p.value, Flags: p.flags, Session: id})
	case p.has("cas"):
		return k.checkAndSet(c, &p)
	}
	return k.outcome(c, &p.query, fsm.ItemPut{Name: p.key, Value: p.value, Flags: p.flags})
}

// checkAndSet writes a key if it has the given version or, with version 0, if it does not exist.
func (k keys) checkAndSet(c echo.Context, p *put) error {
	command := fsm.ItemPut{Name: p.key, Value: p.value, Flags: p.flags, Version: fsm.Change[uint64]{Given: true, Value: p.cas}}
	reply, err := k.contend(c, command, p.key, false, func() (bool, error) { return k.isPast(c, &command), nil })
	if err != nil {
		return err
	}
	return k.sendResult(c, &p.query, reply)
}

// contend performs a command by which a contender takes a key, after BeginWrite has let it through. If refused reports
// true, it replies as the state machine would, but writes no entry to the log.
func (k keys) contend(c echo.Context, command fsm.Command, key string, acquire bool, refused func() (bool, error)) (reply *calls.Reply, err error) {
	if k.Rights.Caller(c).May(command) != nil {
		return k.do(c, command) // refused there, and in the audit log
	}
	end, err := k.queues.BeginWrite(c.Request().Context(), connOf(c), key, acquire)
	if err != nil {
		return nil, err
	}
	taken := false
	defer func() { end(taken) }()
	if no, err := refused(); no || err != nil {
		return &calls.Reply{Result: fsm.Result{Code: fsm.ItemDiffers}}, err
	}
	if reply, err = k.do(c, command); err == nil {
		taken = reply.Code == fsm.OK
	}
	return reply, err
}

// mayJudge reports whether this node may refuse a command by its own state. It may not if the caller has no right to the
// command. It may not if the request has an Idempotency-Key: an earlier request with this key may have succeeded, and
// only the log knows its reply.
func (k keys) mayJudge(c echo.Context, command fsm.Command) bool {
	return len(c.Request().Header.Values("Idempotency-Key")) == 0 && k.Rights.Caller(c).May(command) == nil
}

// isPast reports whether this node's state has a higher version of a key than a check-and-set
// names. Versions only rise, so the check can never succeed again.
func (k keys) isPast(c echo.Context, command *fsm.ItemPut) (past bool) {
	if command.Version.Value == 0 || !k.mayJudge(c, *command) {
		return false
	}
	k.Reads.View(c, func(m *fsm.Machine) {
		i, exists := m.Item(command.Name)
		past = exists && i.Version > command.Version.Value
	})
	return past
}

var errMissingSession = exchange.Sentence(http.StatusInternalServerError, "raft apply failed: missing session")

// acquire gives a key to a session. The state machine checks the delay of the key before the session.
func (k keys) acquire(c echo.Context, p *put) error {
	session := p.values.Get("acquire")
	id, _ := parseSession(session) // 0 is no session
	command := fsm.ItemAcquire{Name: p.key, Value: p.value, Flags: p.flags, Session: id}
	reply, err := k.contend(c, command, p.key, true, func() (bool, error) { return k.isTaken(c, &command) })
	if err != nil {
		return err
	}
	over := reply.Replayed && reply.Code == fsm.OK && reply.DeadlineMS == 0 // the session ended after the first reply
	switch reply.Code {
	case fsm.UnknownSession, fsm.ExpiredSession, fsm.Revoked:
		over = true
	}
	if over {
		if session == "" {
			return errMissingSession
		}
		return exchange.Sentence(http.StatusInternalServerError, "raft apply failed: invalid session "+strconv.Quote(session))
	}
	return k.sendResult(c, &p.query, reply)
}

// isTaken reports whether another session holds a key, so that an acquire by a living session must fail. Most refusals
// of a crowd then need no log entry. The other session may have released the key in the meantime, so a linearizable read
// confirms what this node's state shows. An acquire by a session of another owner goes to the log, which refuses the
// session as unknown.
func (k keys) isTaken(c echo.Context, command *fsm.ItemAcquire) (taken bool, err error) {
	if !k.mayJudge(c, *command) {
		return false, nil
	}
	owner := k.Rights.Caller(c).Owner(*command)
	check := func(m *fsm.Machine) {
		i, _ := m.Item(command.Name)
		taken = i.Session != 0 && i.Session != command.Session && m.FindsSession(owner, command.Session)
	}
	if k.Reads.View(c, check); taken {
		if _, err = k.Node.Read(c.Request().Context(), calls.Consistency{}); err == nil {
			k.Reads.View(c, check)
		}
	}
	return taken, err
}

// deleteKey deletes a key, or with recurse all keys that begin with it.
func (k keys) deleteKey(c echo.Context) error {
	q, err := k.readQuery(c)
	if err != nil {
		return err
	}
	key, cas := keyOf(c), uint64(0)
	if err = q.checkNamespace(); err == nil && !q.has("recurse") {
		err = required(key, "key name")()
	}
	if err == nil {
		err = firstError(q.atMostOne("recurse", "cas"), q.readUint64("cas", &cas), q.checkDatacenter, validKey(key))
	}
	switch {
	case err != nil:
		return err
	case q.has("recurse"):
		return k.deleteBelow(c, &q, key)
	}
	return k.outcome(c, &q, fsm.ItemDelete{Name: key, Version: fsm.Change[uint64]{Given: q.has("cas"), Value: cas}})
}

// deleteBelow deletes all keys that begin with a prefix. It takes one command, or several if the keys are too many for
// one command.
func (k keys) deleteBelow(c echo.Context, q *query, prefix string) error {
	key, err := exchange.IdempotencyKey(c.Request().Header)
	for more := true; err == nil && more; key = "" { // an Idempotency-Key stands for the first step alone
		var reply *calls.Reply
		if reply, err = k.doKeyed(c, fsm.ItemDeleteAll{Prefix: prefix}, key); err == nil {
			if reply.Code != fsm.OK {
				return exchange.Refused(&reply.Result)
			}
			more = reply.More
		}
	}
	if err != nil {
		return err
	}
	return k.sendOutcome(c, q, true)
}

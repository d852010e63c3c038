package consul

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// maxValue is the most bytes of a value, whatever --max-body is.
const maxValue = 512 << 10

// do performs a command of a request, which may have an Idempotency-Key.
func (d *dialect) do(c echo.Context, command fsm.Command) (*cluster.Reply, error) {
	key, err := exchange.IdempotencyKey(c.Request().Header)
	if err != nil {
		return nil, err
	}
	return d.doKeyed(c, command, key)
}

func (d *dialect) doKeyed(c echo.Context, command fsm.Command, key string) (*cluster.Reply, error) {
	reply, err := d.Node.Do(c.Request().Context(), cluster.Call{Command: command, Key: key})
	if err != nil {
		return nil, err
	}
	d.SetIndex(c, reply.Index)
	if reply.Replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	if len(reply.Each) == 1 { // a renewal: its own result
		reply.Result = reply.Each[0]
	}
	return reply, nil
}

// outcome sends true for a command that was carried out, and false for one whose condition
// does not hold.
func (d *dialect) outcome(c echo.Context, q *asked, command fsm.Command) error {
	reply, err := d.do(c, command)
	if err != nil {
		return err
	}
	return d.sendResult(c, q, reply)
}

func (d *dialect) sendResult(c echo.Context, q *asked, reply *cluster.Reply) error {
	switch reply.Code {
	case fsm.OK:
		return d.sendOutcome(c, q, true)
	case fsm.ItemDiffers:
		return d.sendOutcome(c, q, false)
	}
	return exchange.Refused(&reply.Result)
}

// put is a PUT of a key.
type put struct {
	asked
	key        string
	value      string
	flags, cas uint64
}

// readPut reads a PUT, in the order of the checks.
func (d *dialect) readPut(c echo.Context) (p put, err error) {
	if p.asked, err = d.query(c); err != nil {
		return p, err
	}
	p.key = keyOf(c)
	return p, steps(p.namespace, needed(p.key, "key name"), p.alone("cas", "acquire", "release"),
		p.number("flags", &p.flags), p.number("cas", &p.cas), func() (err error) {
			p.value, err = d.readValue(c)
			return err
		}, p.place, validKey(p.key))
}

// readValue reads the body: any bytes, of any type.
func (d *dialect) readValue(c echo.Context) (string, error) {
	r := c.Request()
	if r.Body == nil || r.Body == http.NoBody {
		return "", nil
	}
	data, err := d.Receive(c, maxValue)
	var p *exchange.Problem
	if errors.As(err, &p) && p.Code == "too-large" {
		size := max(r.ContentLength, maxValue+1) // that of a chunked body is not known
		return "", refuse(p.Status, fmt.Sprintf("Request body(%d bytes) too large, max size: %d bytes.", size, maxValue))
	}
	return string(data), err
}

// putKey writes a key, and gives it to a session or takes it from one.
func (d *dialect) putKey(c echo.Context) error {
	p, err := d.readPut(c)
	if err != nil {
		return err
	}
	d.DoneWithBody(c)
	switch {
	case p.has("acquire"):
		return d.acquire(c, &p)
	case p.has("release"):
		session := p.values.Get("release")
		if session == "" {
			return errMissingSession
		}
		id, _ := parseSession(session) // 0 is held by no session
		return d.outcome(c, &p.asked, fsm.ItemRelease{Name: p.key, Value: p.value, Flags: p.flags, Session: id})
	case p.has("cas"):
		return d.checkAndSet(c, &p)
	}
	return d.outcome(c, &p.asked, fsm.ItemPut{Name: p.key, Value: p.value, Flags: p.flags})
}

// checkAndSet writes a key that has a version, or that is absent.
func (d *dialect) checkAndSet(c echo.Context, p *put) error {
	end, err := d.lines.Write(c.Request().Context(), connOf(c), p.key, false)
	if err != nil {
		return err
	}
	took := false
	defer func() { end(took) }()
	command := fsm.ItemPut{Name: p.key, Value: p.value, Flags: p.flags, Version: fsm.Change[uint64]{Given: true, Value: p.cas}}
	if d.isPast(c, &command) {
		return d.sendOutcome(c, &p.asked, false)
	}
	reply, err := d.do(c, command)
	if err != nil {
		return err
	}
	took = reply.Code == fsm.OK
	return d.sendResult(c, &p.asked, reply)
}

// mayJudge reports whether this node may refuse a command by its own state: not if the caller may not
// give the command, nor if it has a key, since the log knows the first reply.
func (d *dialect) mayJudge(c echo.Context, command fsm.Command) bool {
	return len(c.Request().Header.Values("Idempotency-Key")) == 0 && d.Caller(c).May(command) == nil
}

// isPast reports whether a key already has a higher version than a check-and-set names, as
// this node has it. Versions only rise, so that the check can never succeed again.
func (d *dialect) isPast(c echo.Context, command *fsm.ItemPut) (past bool) {
	if command.Version.Value == 0 || !d.mayJudge(c, *command) {
		return false
	}
	d.View(c, func(m *fsm.Machine) {
		i, exists := m.Item(command.Name)
		past = exists && i.Version > command.Version.Value
	})
	return past
}

// errMissingSession refuses an empty session.
var errMissingSession = &refusal{status: http.StatusInternalServerError, text: "raft apply failed: missing session"}

// acquire gives a key to a session. The delay of a key is checked before the session is.
func (d *dialect) acquire(c echo.Context, p *put) error {
	session := p.values.Get("acquire")
	id, _ := parseSession(session) // 0 is no session
	end, err := d.lines.Write(c.Request().Context(), connOf(c), p.key, true)
	if err != nil {
		return err
	}
	took := false
	defer func() { end(took) }()
	command := fsm.ItemAcquire{Name: p.key, Value: p.value, Flags: p.flags, Session: id}
	if d.isTaken(c, &command) {
		return d.sendOutcome(c, &p.asked, false)
	}
	reply, err := d.do(c, command)
	if err != nil {
		return err
	}
	switch took = reply.Code == fsm.OK; reply.Code {
	case fsm.UnknownSession, fsm.ExpiredSession, fsm.Revoked:
		if session == "" {
			return errMissingSession
		}
		return refuse(http.StatusInternalServerError, "raft apply failed: invalid session "+strconv.Quote(session))
	}
	return d.sendResult(c, &p.asked, reply)
}

// isTaken reports whether another session holds a key, so that an acquire by one that lives is refused. The
// log is spared most refusals of a crowd by it. What this node's own state shows is confirmed by
// a linearizable read, since the other session may have released the key.
func (d *dialect) isTaken(c echo.Context, command *fsm.ItemAcquire) (taken bool) {
	if !d.mayJudge(c, *command) {
		return false
	}
	look := func(m *fsm.Machine) {
		i, _ := m.Item(command.Name)
		_, lives := m.Session(command.Session)
		taken = lives && i.Session != 0 && i.Session != command.Session
	}
	if d.View(c, look); taken {
		if _, err := d.Node.Read(c.Request().Context(), cluster.Consistency{}); err != nil {
			return false
		}
		d.View(c, look)
	}
	return taken
}

// deleteKey deletes a key, or with recurse all that begin with it.
func (d *dialect) deleteKey(c echo.Context) error {
	q, err := d.query(c)
	if err != nil {
		return err
	}
	key, cas := keyOf(c), uint64(0)
	if err = q.namespace(); err == nil && !q.has("recurse") {
		err = needed(key, "key name")()
	}
	if err == nil {
		err = steps(q.alone("recurse", "cas"), q.number("cas", &cas), q.place, validKey(key))
	}
	switch {
	case err != nil:
		return err
	case q.has("recurse"):
		return d.deleteBelow(c, &q, key)
	}
	return d.outcome(c, &q, fsm.ItemDelete{Name: key, Version: fsm.Change[uint64]{Given: q.has("cas"), Value: cas}})
}

// deleteBelow deletes all keys that begin with a prefix. It is one step, unless there are very
// many of them.
func (d *dialect) deleteBelow(c echo.Context, q *asked, prefix string) error {
	key, err := exchange.IdempotencyKey(c.Request().Header)
	for more := true; err == nil && more; key = "" { // a key stands for the first step alone
		var reply *cluster.Reply
		if reply, err = d.doKeyed(c, fsm.ItemDeleteAll{Prefix: prefix}, key); err == nil {
			if reply.Code != fsm.OK {
				return exchange.Refused(&reply.Result)
			}
			more = reply.More
		}
	}
	if err != nil {
		return err
	}
	return d.sendOutcome(c, q, true)
}

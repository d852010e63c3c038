package nodered

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Config is the configuration of the dialect.
type Config struct {
	// CheckCallback returns nil, or why an address can't be notified, as a sentence for the client. It must not block.
	// If it is nil, a down with a callback is refused.
	CheckCallback func(address string) error
}

const (
	jsonType = "application/json; charset=utf-8"
	// membersTime bounds how long a reply waits until this node's state has the semaphore's other JSON members, see
	// keptMembers. After this time the reply is sent without them.
	membersTime = time.Second
)

type dialect struct {
	*exchange.Exchange
	options Config
}

func (n *dialect) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("POST", "/semaphore", n.create),
		exchange.On("DELETE", "/semaphore/:name", n.delete),
		exchange.On("GET", "/semaphore/value/:name", n.value),
		exchange.On("POST", "/semaphore/up", n.up),
		exchange.On("POST", "/semaphore/down", n.down),
	}
}

// New returns the dialect.
func New(x *exchange.Exchange, options Config) exchange.Dialect {
	n := &dialect{x, options}
	return exchange.Dialect{Routes: n.routes(), Render: n.render}
}

func (n *dialect) render(c echo.Context, err error) error {
	var refused *exchange.Refusal
	if errors.As(err, &refused) {
		return n.Replies.SendRefusal(c, refused)
	}
	return n.Replies.SendSentence(c, err)
}

// create makes a semaphore. It reports that the name is taken before it reports a fault in the value.
func (n *dialect) create(c echo.Context) error {
	body, name, key, err := n.readRequest(c)
	if err != nil {
		return err
	}
	command := fsm.CreateSemaphore{Name: name}
	value, err := body.value()
	if err == nil {
		command.Permits = value
		command.Metadata, err = body.metadata()
	}
	if err != nil {
		return n.unlessTaken(c, body, name, err)
	}
	reply, err := n.Perform(c.Request().Context(), c, calls.Call{Command: command, Key: key})
	switch {
	case err != nil:
		return err
	case reply.Code != fsm.OK:
		return exchange.Refused(&reply.Result)
	case !reply.Created:
		return n.Replies.Send(c, http.StatusSeeOther, jsonType, body.encode())
	}
	return n.Replies.Send(c, http.StatusOK, jsonType, body.with("value", strconv.AppendInt(nil, value, 10)).encode())
}

// unlessTaken replies that the name is taken if it is. Otherwise it returns the refusal of the create.
func (n *dialect) unlessTaken(c echo.Context, body object, name string, refusal error) error {
	_, exists, err := n.readSemaphore(c, name)
	switch {
	case err != nil:
		return err
	case exists:
		return n.Replies.Send(c, http.StatusSeeOther, jsonType, body.encode())
	}
	return refusal
}

// readSemaphore reads a semaphore, linearizably.
func (n *dialect) readSemaphore(c echo.Context, name string) (s fsm.SemaphoreView, exists bool, err error) {
	if err := n.Rights.MayName(c, name); err != nil {
		return s, false, err
	}
	at, err := n.Node.Read(c.Request().Context(), calls.Consistency{})
	if err != nil {
		return s, false, err
	}
	n.Replies.SetIndex(c, at.Index)
	n.Node.View(func(m *fsm.Machine) { s, exists = m.Semaphore(name) })
	return s, exists, nil
}

func (n *dialect) value(c echo.Context) error {
	name, err := pathName(c)
	if err != nil {
		return err
	}
	s, exists, err := n.readSemaphore(c, name)
	switch {
	case err != nil:
		return err
	case !exists:
		return exchange.Sentence(http.StatusNotFound, "semaphore not found")
	}
	return n.sendValue(c, name, s.Available, keptJSON(s.Metadata))
}

func (n *dialect) up(c echo.Context) error {
	body, name, key, err := n.readRequest(c)
	if err != nil {
		return err
	}
	count, err := body.amount()
	if err != nil {
		return err
	}
	reply, err := n.Perform(c.Request().Context(), c, calls.Call{Command: fsm.Up{Name: name, Count: count}, Key: key})
	if err != nil {
		return err
	}
	return n.sendMove(c, name, reply)
}

func (n *dialect) down(c echo.Context) error {
	body, name, key, err := n.readRequest(c)
	if err != nil {
		return err
	}
	command := fsm.Down{Name: name}
	if command.Count, err = body.amount(); err != nil {
		return err
	}
	if command.WaitMS, err = body.wait(n.Config.MaxWait.Milliseconds()); err != nil {
		return err
	}
	if command.Notice, err = body.callback(n.options.CheckCallback); err != nil {
		return err
	}
	if command.WaitMS > 0 {
		if command.Notice != "" {
			return exchange.Invalid("callback", "Give wait or callback, not both: only a down that is refused at once can be called back.")
		}
		command.Session = n.Node.DrawSession()
	}
	call := calls.Call{Command: command, Key: key, Wait: time.Duration(command.WaitMS) * time.Millisecond}
	reply, err := n.Perform(c.Request().Context(), c, call)
	if err != nil {
		return err
	}
	if reply.Code == fsm.Unavailable && command.Notice != "" { // without a notice, the place belongs to a wait that is over
		c.Response().Header().Set(exchange.HeaderNotice, strconv.FormatUint(reply.Place, 10))
	}
	return n.sendMove(c, name, reply)
}

func (n *dialect) sendMove(c echo.Context, name string, r *calls.Reply) error {
	switch r.Code {
	case fsm.OK:
		return n.sendValue(c, name, r.Value, n.membersOf(c, name, r))
	case fsm.UnknownSemaphore, fsm.Deleted:
		return exchange.Sentence(http.StatusNotFound, "semaphore not found")
	case fsm.Unavailable:
		return exchange.Sentence(http.StatusConflict, "Semaphore locked")
	case fsm.Waiting: // a repeat whose wait ended before the first request's
		return exchange.Sentence(http.StatusAccepted, "The request still waits. Repeat it with the same Idempotency-Key.")
	}
	return exchange.Refused(&r.Result)
}

func (n *dialect) delete(c echo.Context) error {
	name, err := pathName(c)
	if err != nil {
		return err
	}
	key, err := exchange.IdempotencyKey(c.Request().Header)
	if err != nil {
		return err
	}
	reply, err := n.Perform(c.Request().Context(), c, calls.Call{Command: fsm.DeleteSemaphore{Name: name}, Key: key})
	switch {
	case err != nil:
		return err
	case reply.Code == fsm.UnknownSemaphore:
		return exchange.Sentence(http.StatusNotFound, "Semaphore not found")
	case reply.Code != fsm.OK:
		return exchange.Refused(&reply.Result)
	}
	return n.Replies.SendText(c, http.StatusOK, "Deletion Successful")
}

// membersOf returns the members that the semaphore keeps from its creation. It waits until this node has caught up with
// the command, and returns nil if that takes longer than membersTime.
func (n *dialect) membersOf(c echo.Context, name string, r *calls.Reply) (members []byte) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), membersTime)
	defer cancel()
	if _, err := n.Node.Read(ctx, calls.Consistency{MinIndex: r.Index}); err != nil {
		n.Config.Logger.Debug("replied without the members kept", exchange.LogPairs(c, "error", err)...)
		return nil
	}
	n.Node.View(func(m *fsm.Machine) {
		if s, exists := m.Semaphore(name); exists && s.Epoch == r.Epoch {
			members = keptJSON(s.Metadata)
		}
	})
	return members
}

// sendValue sends {"name", "value"} and the kept members.
func (n *dialect) sendValue(c echo.Context, name string, value int64, members []byte) error {
	out := append(exchange.AppendText([]byte(`{"name":`), name), `,"value":`...)
	out = strconv.AppendInt(out, value, 10)
	out = append(append(out, members...), '}')
	return n.Replies.Send(c, http.StatusOK, jsonType, out)
}

func pathName(c echo.Context) (string, error) {
	text, ok := exchange.PathParam(c, "name")
	switch {
	case text == "":
		return "", exchange.ErrUnknownRoute // for example /semaphore/
	case !ok:
		return "", exchange.Invalid("name", "The path's percent-encoding can't be read.")
	}
	return exchange.SemaphoreName("name", text)
}

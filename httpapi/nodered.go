package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// NodeRED switches the Node-RED dialect on: the five routes of the "Semaphore
// Service" subflow, so that its clients need only a new address. It is
// translation only: what is granted, refused or waited for is the state
// machine's.
type NodeRED struct {
	// CheckCallback says, in a sentence for the client, what is wrong with the
	// address that a refused down wants to be told at; nil: nothing is. It must not
	// block. Without it nobody is told anything, and a down with a callback is
	// refused.
	CheckCallback func(address string) error
}

const (
	nodeREDJSON = "application/json; charset=utf-8"
	// headerNotice carries the id of the notice that a refused down has left.
	headerNotice = "X-Signalbox-Notice"
	// membersTime bounds how long an answer waits for this node to know the
	// members that it repeats; it is given without them otherwise.
	membersTime = time.Second
)

// nodeRED serves the dialect's routes.
type nodeRED struct {
	*Handler
	options *NodeRED
}

func (n *nodeRED) routes() []route {
	return []route{
		{"POST", "/semaphore", n.create},
		{"DELETE", "/semaphore/:name", n.delete},
		{"GET", "/semaphore/value/:name", n.value},
		{"POST", "/semaphore/up", n.up},
		{"POST", "/semaphore/down", n.down},
	}
}

// addNodeREDRoutes registers the dialect beside the native API.
func (h *Handler) addNodeREDRoutes() {
	n := &nodeRED{h, h.cfg.NodeRED}
	for _, r := range n.routes() {
		h.echo.Add(r.method, r.path, r.handler)
		if r.method == http.MethodGet {
			h.echo.Add(http.MethodHead, r.path, r.handler)
		}
	}
}

// nodeREDError is a refusal of the dialect's own: a status and a bare sentence.
type nodeREDError struct {
	status int
	text   string
}

// Error is the text.
func (e *nodeREDError) Error() string { return e.text }

func nodeREDRefusal(status int, text string) error { return &nodeREDError{status, text} }

// nodeREDRefused tells a result of the state machine natively; all that is said
// of it is the sentence.
func nodeREDRefused(r *fsm.Result) error {
	p := refused(r)
	if r.Code == fsm.LimitReached {
		p.Detail = "A configured limit is reached: " + r.Rule.String() + ". Nothing was changed."
	}
	return p
}

// plainNodeRED renders whatever a request of the dialect's routes is refused
// with, by the guards before them too: the native status, with one sentence of
// text. A path or method that no route has is left to the native API.
func (h *Handler) plainNodeRED(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		var routed *echo.HTTPError
		if err == nil || h.cfg.NodeRED == nil || !strings.HasPrefix(c.Path(), "/semaphore") || c.Response().Committed ||
			errors.Is(err, errUnknownRoute) || errors.As(err, &routed) ||
			errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
			return err
		}
		var own *nodeREDError
		if errors.As(err, &own) {
			return h.sendText(c, own.status, own.text)
		}
		p := h.problemOf(c, err)
		if retry := kinds[p.Code].retryAfter; retry != "" {
			c.Response().Header().Set("Retry-After", retry)
		}
		return h.sendText(c, p.Status, p.Detail)
	}
}

// create makes a semaphore. That the name is taken is told before anything is
// said about the value.
func (n *nodeRED) create(c echo.Context) error {
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
	reply, err := n.do(c, cluster.Call{Command: command, Key: key})
	switch {
	case err != nil:
		return err
	case reply.Code != fsm.OK:
		return nodeREDRefused(&reply.Result)
	case !reply.Created:
		return n.send(c, http.StatusSeeOther, nodeREDJSON, body.encode())
	}
	return n.send(c, http.StatusOK, nodeREDJSON, body.with("value", strconv.AppendInt(nil, value, 10)).encode())
}

// unlessTaken refuses a create, or answers that the name is taken.
func (n *nodeRED) unlessTaken(c echo.Context, body nodeREDBody, name string, refusal error) error {
	_, exists, err := n.look(c, name)
	switch {
	case err != nil:
		return err
	case exists:
		return n.send(c, http.StatusSeeOther, nodeREDJSON, body.encode())
	}
	return refusal
}

// look reads a semaphore, linearizably.
func (n *nodeRED) look(c echo.Context, name string) (s fsm.SemaphoreView, exists bool, err error) {
	at, err := n.node.Read(c.Request().Context(), cluster.Consistency{})
	if err != nil {
		return s, false, err
	}
	n.setIndex(c, at.Index)
	n.node.View(func(m *fsm.Machine) { s, exists = m.Semaphore(name) })
	return s, exists, nil
}

func (n *nodeRED) value(c echo.Context) error {
	name, err := nodeREDPath(c)
	if err != nil {
		return err
	}
	s, exists, err := n.look(c, name)
	switch {
	case err != nil:
		return err
	case !exists:
		return nodeREDRefusal(http.StatusNotFound, "semaphore not found")
	}
	return n.sendValue(c, name, s.Available, nodeREDMembers(s.Metadata))
}

func (n *nodeRED) up(c echo.Context) error {
	body, name, key, err := n.readRequest(c)
	if err != nil {
		return err
	}
	count, err := body.amount()
	if err != nil {
		return err
	}
	reply, err := n.do(c, cluster.Call{Command: fsm.Up{Name: name, Count: count}, Key: key})
	if err != nil {
		return err
	}
	return n.answerMove(c, name, reply)
}

func (n *nodeRED) down(c echo.Context) error {
	body, name, key, err := n.readRequest(c)
	if err != nil {
		return err
	}
	command := fsm.Down{Name: name}
	if command.Count, err = body.amount(); err != nil {
		return err
	}
	if command.WaitMS, err = body.wait(n.cfg.MaxWait.Milliseconds()); err != nil {
		return err
	}
	if command.Notice, err = body.callback(n.options.CheckCallback); err != nil {
		return err
	}
	if command.WaitMS > 0 {
		if command.Notice != "" {
			return invalid("callback", "Give wait or callback, not both: only a down that is refused at once can be called back.")
		}
		command.Session = n.node.DrawSession()
	}
	reply, err := n.do(c, cluster.Call{Command: command, Key: key, Wait: time.Duration(command.WaitMS) * time.Millisecond})
	if err != nil {
		return err
	}
	if reply.Code == fsm.Unavailable && command.Notice != "" { // else the place is that of a wait that is over
		c.Response().Header().Set(headerNotice, strconv.FormatUint(reply.Place, 10))
	}
	return n.answerMove(c, name, reply)
}

// answerMove tells how an up or a down came out.
func (n *nodeRED) answerMove(c echo.Context, name string, r *cluster.Reply) error {
	switch r.Code {
	case fsm.OK:
		return n.sendValue(c, name, r.Value, n.membersOf(c, name, r))
	case fsm.UnknownSemaphore, fsm.Deleted:
		return nodeREDRefusal(http.StatusNotFound, "semaphore not found")
	case fsm.Unavailable:
		return nodeREDRefusal(http.StatusConflict, "Semaphore locked")
	case fsm.Waiting: // a repeat whose own wait was shorter than what is left of the first's
		return nodeREDRefusal(http.StatusAccepted, "It still waits. Ask again with the same Idempotency-Key.")
	}
	return nodeREDRefused(&r.Result)
}

func (n *nodeRED) delete(c echo.Context) error {
	name, err := nodeREDPath(c)
	if err != nil {
		return err
	}
	key, err := nodeREDKey(c)
	if err != nil {
		return err
	}
	reply, err := n.do(c, cluster.Call{Command: fsm.DeleteSemaphore{Name: name}, Key: key})
	switch {
	case err != nil:
		return err
	case reply.Code == fsm.UnknownSemaphore:
		return nodeREDRefusal(http.StatusNotFound, "Semaphore not found")
	case reply.Code != fsm.OK:
		return nodeREDRefused(&reply.Result)
	}
	return n.sendText(c, http.StatusOK, "Deletion Successful")
}

// do performs a command and puts into the reply's head what is known then.
func (n *nodeRED) do(c echo.Context, call cluster.Call) (*cluster.Reply, error) {
	reply, err := n.node.Do(c.Request().Context(), call)
	if err != nil {
		return nil, err
	}
	n.setIndex(c, reply.Index)
	if reply.Replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	return &reply, nil
}

// membersOf answers the members that were kept of the semaphore's creation: this
// node may have to catch up with the leader's answer first.
func (n *nodeRED) membersOf(c echo.Context, name string, r *cluster.Reply) (members []byte) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), membersTime)
	defer cancel()
	if _, err := n.node.Read(ctx, cluster.Consistency{MinIndex: r.Index}); err != nil {
		n.cfg.Logger.Debug("answered without the members kept", "error", err)
		return nil
	}
	n.node.View(func(m *fsm.Machine) {
		if s, exists := m.Semaphore(name); exists && s.Epoch == r.Epoch {
			members = nodeREDMembers(s.Metadata)
		}
	})
	return members
}

// sendValue answers {"name", "value"} and the members that were kept.
func (n *nodeRED) sendValue(c echo.Context, name string, value int64, members []byte) error {
	out := append(appendPlain([]byte(`{"name":`), name), `,"value":`...)
	out = strconv.AppendInt(out, value, 10)
	out = append(append(out, members...), '}')
	return n.send(c, http.StatusOK, nodeREDJSON, out)
}

// nodeREDPath answers the name of a path.
func nodeREDPath(c echo.Context) (string, error) {
	text, ok := pathParam(c, "name")
	switch {
	case text == "":
		return "", errUnknownRoute // no route there: /semaphore/
	case !ok:
		return "", invalid("name", "The path's percent-encoding can't be read.")
	}
	return semaphoreName("name", text)
}

// nodeREDKey answers the idempotency key of a request, "" for none.
func nodeREDKey(c echo.Context) (string, error) {
	keys, given := c.Request().Header["Idempotency-Key"]
	if !given {
		return "", nil
	}
	if len(keys) != 1 || !validKey(keys[0]) {
		return "", invalid("Idempotency-Key", keyForm)
	}
	return keys[0], nil
}

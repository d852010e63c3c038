package terraform

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// looks bounds how often a request looks at a lock that others take and give back meanwhile.
const looks = 8

// dialect serves the dialect's routes.
type dialect struct{ *exchange.Exchange }

// New returns the dialect.
func New(x *exchange.Exchange) exchange.Dialect {
	d := &dialect{x}
	return exchange.Dialect{Render: d.render, Routes: []exchange.Route{
		exchange.On("LOCK", "/terraform/:name", d.lock),
		exchange.On("UNLOCK", "/terraform/:name", d.unlock),
	}}
}

// lock takes the lock, or replies with the one who has it. A repeat of the request that took
// it succeeds.
func (d *dialect) lock(c echo.Context) error {
	name, info, err := d.request(c)
	if err != nil {
		return err
	}
	id := idOf(info)
	if id == "" {
		return exchange.Invalid("", `The body is the JSON of a lock, with an "ID".`)
	}
	absent := fsm.Change[uint64]{Given: true}
	for range looks {
		refused, err := d.do(c, fsm.ItemPut{Name: name, Value: info, Version: absent})
		if err != nil {
			return err
		}
		if !refused {
			return d.SendText(c, http.StatusOK, "")
		}
		held, locked, err := d.look(c, name)
		switch {
		case err != nil:
			return err
		case locked && idOf(held.Value) == id:
			return d.SendText(c, http.StatusOK, "")
		case locked:
			return d.Send(c, http.StatusLocked, "application/json", []byte(held.Value))
		}
	}
	return outcome.ErrNotApplied
}

// unlock gives back the lock that the body names or, without a body, the lock of whoever has
// it: so a client unlocks by force. A lock that is free stays free.
func (d *dialect) unlock(c echo.Context) error {
	name, info, err := d.request(c)
	if err != nil {
		return err
	}
	id := idOf(info)
	if id == "" && info != "" {
		return exchange.Invalid("", `The body is the JSON of a lock, with an "ID", or there is none.`)
	}
	for range looks {
		held, locked, err := d.look(c, name)
		switch {
		case err != nil:
			return err
		case !locked:
			return d.SendText(c, http.StatusOK, "")
		case id != "" && idOf(held.Value) != id, idOf(held.Value) == "": // of another, or no lock
			return d.Send(c, http.StatusConflict, "application/json", []byte(held.Value))
		}
		refused, err := d.do(c, fsm.ItemDelete{Name: name, Version: fsm.Change[uint64]{Given: true, Value: held.Version}})
		if err != nil {
			return err
		}
		if !refused {
			return d.SendText(c, http.StatusOK, "")
		}
	}
	return outcome.ErrNotApplied
}

// request reads the name of a lock and the body.
func (d *dialect) request(c echo.Context) (name, info string, err error) {
	name, ok := exchange.PathParam(c, "name")
	if name == "" {
		return "", "", exchange.ErrUnknownRoute
	}
	if !ok || !fsm.ValidName(name) {
		return "", "", exchange.Invalid("name", "The name of a lock is 1 to 512 bytes of UTF-8 without control characters.")
	}
	if err := exchange.CheckEncoding(c.Request()); err != nil {
		return "", "", err
	}
	data, err := d.Receive(c, d.Config.BodyBytes)
	d.DoneWithBody(c)
	return name, string(data), err
}

// idOf returns the id of a lock from its JSON, "" if it has none.
func idOf(info string) string {
	var lock struct{ ID string }
	if json.Unmarshal([]byte(info), &lock) != nil {
		return ""
	}
	return lock.ID
}

// do performs a command, and reports whether it was refused since the item is not as the
// command needs it.
func (d *dialect) do(c echo.Context, command fsm.Command) (refused bool, err error) {
	reply, err := d.Node.Do(c.Request().Context(), cluster.Call{Command: command})
	if err != nil {
		return false, err
	}
	d.SetIndex(c, reply.Index)
	if reply.Code == fsm.OK || reply.Code == fsm.ItemDiffers {
		return reply.Code == fsm.ItemDiffers, nil
	}
	return false, exchange.Refused(&reply.Result)
}

// look reads a lock, linearizably.
func (d *dialect) look(c echo.Context, name string) (held fsm.ItemView, locked bool, err error) {
	if err := d.MayName(c, name); err != nil {
		return held, false, err
	}
	if _, err := d.Node.Read(c.Request().Context(), cluster.Consistency{}); err != nil {
		return held, false, err
	}
	d.View(c, func(m *fsm.Machine) { held, locked = m.Item(name) })
	return held, locked, nil
}

// render sends a refusal: its native status, with one sentence of text.
func (d *dialect) render(c echo.Context, err error) error {
	p := d.Problem(c, err)
	p.SetRetryAfter(c.Response().Header())
	return d.SendText(c, p.Status, p.Detail)
}

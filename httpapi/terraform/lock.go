package terraform

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// lock takes the lock, or replies with its holder. A repeat of the request that took it succeeds.
func (d *dialect) lock(c echo.Context, t target, info []byte, id string) error {
	if id == "" {
		return exchange.Invalid("", `The body is the JSON of a lock, with an "ID".`)
	}
	return d.update(c, t, func(doc *document) (bool, error) {
		switch {
		case doc.Lock != nil && doc.id() == id:
			return false, d.SendText(c, http.StatusOK, "")
		case doc.Lock != nil:
			return false, d.Send(c, http.StatusLocked, "application/json", doc.Lock)
		}
		doc.Lock, doc.Method = info, t.method
		return true, nil
	})
}

// unlock gives back the lock that the body names or, without a body, the lock of whoever has
// it: so a client unlocks by force. A lock that is free stays free.
func (d *dialect) unlock(c echo.Context, t target, id string, named bool) error {
	if id == "" && named {
		return exchange.Invalid("", `The body is the JSON of a lock, with an "ID", or there is none.`)
	}
	return d.update(c, t, func(doc *document) (bool, error) {
		switch {
		case doc.Lock == nil:
			return false, d.SendText(c, http.StatusOK, "")
		case id != "" && doc.id() != id:
			return false, d.Send(c, http.StatusConflict, "application/json", doc.Lock)
		}
		if id == "" {
			doc.Freed = doc.id()
		}
		doc.Lock, doc.Method = nil, ""
		return true, nil
	})
}

// lockOrUnlock serves a lock's JSON by a method that may be the one for either. A client repeats
// a request by the same method, so another method than the one that took the lock gives it back.
// The same method must not: a repeat of a lock whose reply was lost would free it.
func (d *dialect) lockOrUnlock(c echo.Context, t target, info []byte, id string) error {
	doc, err := d.read(c, t)
	if err != nil {
		return err
	}
	if doc.id() == id && doc.Method != t.method {
		return d.unlock(c, t, id, true)
	}
	return d.lock(c, t, info, id)
}

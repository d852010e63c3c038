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
			return false, d.Replies.SendText(c, http.StatusOK, "")
		case doc.Lock != nil:
			return false, d.Replies.Send(c, http.StatusLocked, "application/json", doc.Lock)
		}
		doc.Lock, doc.Method, doc.Released = info, t.method, ""
		return true, nil
	})
}

// unlock gives back the lock that the body names. Without a body it frees the lock of any client:
// so a client unlocks by force. A lock that is free stays free.
func (d *dialect) unlock(c echo.Context, t target, id string, named bool) error {
	if id == "" && named {
		return exchange.Invalid("", `The body is the JSON of a lock, with an "ID", or empty.`)
	}
	return d.update(c, t, func(doc *document) (bool, error) {
		switch {
		case doc.Lock == nil:
			return false, d.Replies.SendText(c, http.StatusOK, "")
		case id != "" && doc.id() != id:
			return false, d.Replies.Send(c, http.StatusConflict, "application/json", doc.Lock)
		}
		if doc.free(id == ""); id != "" && mayLock(t.method) {
			doc.Released = id
		}
		return true, nil
	})
}

// lockOrUnlock serves a lock's JSON by a method that may mean either. A client repeats a request by
// the same method. So another method than the lock's gives the lock back. The same method must
// not: a repeat of a lock whose reply was lost would free it. A repeat of the unlock finds the lock
// given back, and must not take it again.
func (d *dialect) lockOrUnlock(c echo.Context, t target, info []byte, id string) error {
	doc, err := d.read(c, t)
	if err != nil {
		return err
	}
	if (doc.id() == id || doc.Lock == nil && doc.Released == id) && doc.Method != t.method {
		return d.unlock(c, t, id, true)
	}
	return d.lock(c, t, info, id)
}

// mayLock reports whether a method may take a lock, so that a repeat of an unlock by this method
// looks like a lock.
func mayLock(method string) bool { return method != "UNLOCK" && method != http.MethodDelete }

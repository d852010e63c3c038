package terraform

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// lock takes the lock, or replies with the lock that is held. If the request names the lock that is held, it succeeds:
// it is a repeat.
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

// unlock releases the lock that the body names. Without a body it releases the lock of any client: so force-unlock
// works. If the lock is free already, it replies as if it had released it.
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

// lockOrUnlock serves a body that is a lock's JSON, sent by a method that may lock as well as unlock. A client locks and
// unlocks by different methods, and repeats a request by the same method. So the method of the lock cannot mean an
// unlock: the request may be a repeat of a lock whose reply was lost. By another method it means an unlock; a repeat of
// this unlock, which finds the lock released, must not lock again.
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

// mayLock reports whether a method may lock. The repeat of an unlock by such a method looks like a lock.
func mayLock(method string) bool { return method != "UNLOCK" && method != http.MethodDelete }

package terraform

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// prefix begins the names of documents.
const prefix = "terraform/"

// maxReads bounds how often a request begins again because other clients have changed the document.
const maxReads = 8

type dialect struct{ *exchange.Exchange }

// New returns the dialect.
func New(x *exchange.Exchange) exchange.Dialect {
	d := &dialect{x}
	served := exchange.Dialect{Render: d.Replies.SendSentence, Routes: []exchange.Route{exchange.On(http.MethodGet, "/terraform/*", d.get)}}
	for _, method := range []string{"LOCK", "UNLOCK", http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		served.Routes = append(served.Routes, exchange.On(method, "/terraform/*", d.change))
	}
	return served
}

// target is the address of a request.
type target struct {
	name   string // of the document
	method string // of the request, or the parameter method
	id     string // the parameter ID: of the lock under which a state is written
}

// target reads the address of a request. Unknown parameters belong to the name, so that
// ?workspace=a and ?workspace=b are two states.
func (d *dialect) target(c echo.Context) (t target, err error) {
	path, ok := exchange.PathParam(c, "*")
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return t, exchange.ErrUnknownRoute
	}
	query := c.Request().URL.Query()
	t = target{name: prefix + path, method: c.Request().Method, id: query.Get("ID")}
	if method := query.Get("method"); method != "" {
		t.method = method
	}
	query.Del("ID")
	query.Del("method")
	if len(query) > 0 {
		t.name += "?" + query.Encode()
	}
	if !ok || strings.Contains(path, "//") || strings.HasPrefix(path, "/") || !fsm.ValidName(partName(t.name, newFolder(1<<63), maxParts)) {
		return t, exchange.Invalid("address", "The address of a state is up to 453 bytes of UTF-8 behind /terraform/, without control characters and empty segments.")
	}
	return t, d.Rights.MayName(c, t.name)
}

// change serves a request that changes the state or the lock. The backend's configuration may name any methods, and one
// address for both. So change tells the requests apart by what the backend sends: a lock's JSON, a state, or no body. A
// request without a body is a force-unlock if it has Content-MD5; a DELETE without either deletes the state.
func (d *dialect) change(c echo.Context) error {
	t, err := d.target(c)
	if err != nil {
		return err
	}
	if err := d.Rights.Caller(c).May(fsm.ItemPut{Name: t.name}); err != nil { // also where no command follows
		d.Config.Tokens.Count(err)
		return err
	}
	body, err := d.body(c, t.method)
	if err != nil {
		return err
	}
	defer d.Bodies.Release(c)
	id, backend := d.lockID(body), c.Request().Header.Get("Content-MD5") != ""
	switch t.method {
	case "LOCK":
		return d.lock(c, t, body, id)
	case "UNLOCK":
		return d.unlock(c, t, id, len(body) > 0)
	case http.MethodDelete:
		if len(body) > 0 || backend {
			return d.unlock(c, t, id, len(body) > 0)
		}
		return d.delete(c, t)
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		switch {
		case id != "":
			return d.lockOrUnlock(c, t, body, id)
		case len(body) > 0:
			return d.put(c, t, body)
		case backend:
			return d.unlock(c, t, "", false)
		}
		return exchange.Invalid("", "The body is a state, or the JSON of a lock.")
	}
	return exchange.Invalid("method", "The method is LOCK, UNLOCK, POST, PUT, PATCH or DELETE.")
}

// body reads a body, and compares it with its Content-MD5.
func (d *dialect) body(c echo.Context, method string) ([]byte, error) {
	if err := exchange.CheckEncoding(c.Request()); err != nil {
		return nil, err
	}
	limit := int64(maxState)
	if method == "LOCK" || method == "UNLOCK" || method == http.MethodDelete {
		limit = d.lockBytes()
	}
	body, err := d.Bodies.Receive(c, limit)
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(body)
	if sent := c.Request().Header.Get("Content-MD5"); sent != "" && sent != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, exchange.Invalid("Content-MD5", "Content-MD5 was computed from another body. The request had no effect; send it again.")
	}
	return body, nil
}

// lockBytes bounds the JSON of a lock.
func (d *dialect) lockBytes() int64 { return min(d.Config.BodyBytes, partBytes/2) }

// lockID returns the id of the lock if a body is a lock's JSON, else "". A state has a serial and no ID.
func (d *dialect) lockID(body []byte) (id string) {
	var members map[string]json.RawMessage
	if int64(len(body)) > d.lockBytes() || json.Unmarshal(body, &members) != nil || members["serial"] != nil {
		return ""
	}
	_ = json.Unmarshal(members["ID"], &id) // an ID that is no text is left out
	return id
}

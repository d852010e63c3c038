package terraform

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// flags mark an item as a document: "tf". Other clients may use the same name for another kind of item.
const flags = 't'<<8 | 'f'

// maxFreed is how many forced unlocks a document remembers.
const maxFreed = 16

// document is the value of the item of an address.
type document struct {
	Lock   json.RawMessage `json:"lock,omitempty"`   // as its client sent it
	Method string          `json:"method,omitempty"` // of the request that took the lock
	Freed  []string        `json:"freed,omitempty"`  // the ids of the latest forced unlocks
	// Released is the id of the previous lock if it was released by another method than Method.
	Released string    `json:"released,omitempty"`
	State    *manifest `json:"state,omitempty"`

	version uint64 // of the item; 0: it does not exist
}

// id returns the id of the lock, "" if it is free.
func (doc *document) id() string {
	var lock struct{ ID string }
	_ = json.Unmarshal(doc.Lock, &lock) // checked when the lock was taken
	return lock.ID
}

// empty reports whether the item may be deleted.
func (doc *document) empty() bool {
	return doc.Lock == nil && doc.State == nil && len(doc.Freed) == 0 && doc.Released == ""
}

// free releases the lock. It remembers the lock's id if that was forced.
func (doc *document) free(forced bool) {
	if forced {
		doc.Freed = append(doc.Freed, doc.id())
		doc.Freed = doc.Freed[max(0, len(doc.Freed)-maxFreed):]
	}
	doc.Lock = nil
}

// locked reports whether a lock is held and the write does not name this lock.
func (doc *document) locked(t target) bool { return doc.Lock != nil && doc.id() != t.id }

// forced reports whether a write names a lock that was freed by force. Another client may then have locked and replaced
// the state that the writer has read.
func (doc *document) forced(t target) bool {
	return t.id != doc.id() && slices.Contains(doc.Freed, t.id)
}

var errForced = exchange.NewProblem("item-differs", "The lock of this ID was freed by force, so the state may have changed since. The request had no effect: lock, and read the state again.")

var errForeign = exchange.NewProblem("item-differs", "The item of this name is neither a lock nor a state. Another client has it: use another address.")

// read reads a document, linearizably. An unused address has an empty document.
func (d *dialect) read(c echo.Context, t target) (doc document, err error) {
	if _, err := d.Node.Read(c.Request().Context(), calls.Consistency{}); err != nil {
		return doc, err
	}
	d.Reads.View(c, func(m *fsm.Machine) { doc, err = documentIn(m, t) })
	return doc, err
}

func documentIn(m *fsm.Machine, t target) (doc document, err error) {
	item, exists := m.Item(t.name)
	if exists && (item.Flags != flags || json.Unmarshal([]byte(item.Value), &doc) != nil) {
		return doc, errForeign
	}
	doc.version = item.Version
	return doc, nil
}

// commit writes the changed document in place of the version that was read, and reports whether this version was still
// current. It deletes an empty document. Then it removes the parts that the document does not name any more.
func (d *dialect) commit(c echo.Context, t target, next document) (done bool, err error) {
	read := fsm.Change[uint64]{Given: true, Value: next.version}
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	var command fsm.Command = fsm.ItemPut{Name: t.name, Value: string(value), Flags: flags, Version: read}
	if next.empty() {
		command = fsm.ItemDelete{Name: t.name, Version: read}
	}
	if done, err = d.do(c, command); done {
		d.sweep(c, t, next)
	}
	return done, err
}

// update reads a document, changes it and commits it. It begins again if another client committed first. change reports
// whether it has changed the document; if not, it has sent the reply.
func (d *dialect) update(c echo.Context, t target, change func(doc *document) (changed bool, err error)) error {
	for range maxReads {
		doc, err := d.read(c, t)
		if err != nil {
			return err
		}
		if changed, err := change(&doc); err != nil || !changed {
			return err
		}
		if done, err := d.commit(c, t, doc); err != nil {
			return err
		} else if done {
			return d.Replies.SendText(c, http.StatusOK, "")
		}
	}
	return outcome.ErrNotApplied
}

// do performs a command, and reports whether the command's condition on the item holds.
func (d *dialect) do(c echo.Context, command fsm.Command) (done bool, err error) {
	reply, err := d.Perform(c.Request().Context(), c, calls.Call{Command: command})
	if err != nil {
		return false, err
	}
	switch reply.Code {
	case fsm.OK:
		return true, nil
	case fsm.ItemDiffers:
		return false, nil
	}
	return false, exchange.Refused(&reply.Result)
}

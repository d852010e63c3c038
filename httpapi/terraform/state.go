package terraform

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	maxState  = 8 << 20   // bytes of a state
	partBytes = 240 << 10 // of each part but the last: its put fits into one entry, see fsm.EntryBytes
	maxParts  = (maxState + partBytes - 1) / partBytes

	maxSwept = 8 // folders that one change removes
)

// manifest describes where a state is.
type manifest struct {
	Folder string `json:"folder"` // see newFolder
	Bytes  int    `json:"bytes"`
	MD5    []byte `json:"md5"`
}

func (s *manifest) parts() int { return (s.Bytes + partBytes - 1) / partBytes }

// newFolder returns a unique name for the parts of a write that has read this version of the
// document.
func newFolder(version uint64) string { return fmt.Sprintf("%020d-%016x", version, rand.Uint64()) }

// versionOf returns the version in the name of a folder; ok is false for another name.
func versionOf(folder string) (version uint64, ok bool) {
	digits, _, _ := strings.Cut(folder, "-")
	version, err := strconv.ParseUint(digits, 10, 64)
	return version, err == nil
}

// folders begins the names of all parts. No address has two slashes in a row.
func folders(name string) string { return name + "//state/" }

func partName(name, folder string, part int) string {
	return fmt.Sprintf("%s%s/%03d", folders(name), folder, part)
}

func (d *dialect) get(c echo.Context) error {
	t, err := d.target(c)
	if err != nil {
		return err
	}
	if _, err := d.Node.Read(c.Request().Context(), calls.Consistency{}); err != nil {
		return err
	}
	var doc document
	var parts []string
	d.Reads.View(c, func(m *fsm.Machine) { // the document together with its parts
		if doc, err = documentIn(m, t); err == nil && doc.State != nil {
			parts, err = partsIn(m, t, doc.State)
		}
	})
	switch {
	case err != nil:
		return err
	case doc.State == nil:
		return d.Replies.SendText(c, http.StatusNotFound, "There is no state.")
	}
	reserved, ok := d.ReplyMemory.Reserve(int64(doc.State.Bytes))
	if !ok {
		return exchange.NewProblem("limit-reached",
			"This node has no room for more large replies at the moment (--max-reply-memory). Try again later, or at another node.")
	}
	defer d.ReplyMemory.Release(reserved)
	header := c.Response().Header()
	header.Set("Content-MD5", base64.StdEncoding.EncodeToString(doc.State.MD5))
	header.Set("ETag", strconv.Quote(doc.State.Folder))
	return d.Replies.Send(c, http.StatusOK, "application/json", []byte(strings.Join(parts, "")))
}

func partsIn(m *fsm.Machine, t target, state *manifest) (parts []string, err error) {
	missing := state.Bytes
	for i := range state.parts() {
		item, _ := m.Item(partName(t.name, state.Folder, i))
		missing -= len(item.Value)
		parts = append(parts, item.Value)
	}
	if missing != 0 {
		return nil, exchange.NewProblem("item-differs", "Parts of the state are missing: an item below "+folders(t.name)+" was deleted or changed.")
	}
	return parts, nil
}

// put writes the state. While a lock is held, the parameter ID has to be the id of this lock.
//
// It writes the parts first, then the document that names them, but only if the document still has the version that put
// has read. So a reader finds a complete state, and of two concurrent writers one begins again.
func (d *dialect) put(c echo.Context, t target, body []byte) error {
	sum := md5.Sum(body)
	for range maxReads {
		doc, err := d.read(c, t)
		switch {
		case err != nil:
			return err
		case doc.locked(t):
			return d.Replies.Send(c, http.StatusLocked, "application/json", doc.Lock)
		case doc.forced(t):
			return errForced
		case doc.version == 0:
			// sweep recognises failed writes by the version of the document. Version 0 stands for a missing document and
			// may come back, so we create the document first.
			if _, err := d.do(c, fsm.ItemPut{Name: t.name, Value: "{}", Flags: flags, Version: fsm.Change[uint64]{Given: true}}); err != nil {
				return err
			}
			continue
		}
		before := doc
		doc.State = &manifest{Folder: newFolder(doc.version), Bytes: len(body), MD5: sum[:]}
		if err := d.putParts(c, t, doc.State, body); err != nil {
			d.remove(c, t, doc.State.Folder)
			if before.empty() {
				_, _ = d.commit(c, t, before) // after a failure the next change removes the rest
			}
			return err
		}
		done, err := d.commit(c, t, doc)
		if err != nil {
			return err
		}
		if done {
			return d.Replies.SendText(c, http.StatusOK, "")
		}
		d.remove(c, t, doc.State.Folder)
	}
	return outcome.ErrNotApplied
}

func (d *dialect) putParts(c echo.Context, t target, state *manifest, body []byte) error {
	for i := range state.parts() {
		part := body[i*partBytes : min((i+1)*partBytes, len(body))]
		if _, err := d.do(c, fsm.ItemPut{Name: partName(t.name, state.Folder, i), Value: string(part)}); err != nil {
			return err
		}
	}
	return nil
}

func (d *dialect) delete(c echo.Context, t target) error {
	return d.update(c, t, func(doc *document) (bool, error) {
		switch {
		case doc.locked(t):
			return false, d.Replies.Send(c, http.StatusLocked, "application/json", doc.Lock)
		case doc.forced(t):
			return false, errForced
		case doc.State == nil && (doc.Lock != nil || doc.empty()):
			return false, d.Replies.SendText(c, http.StatusOK, "")
		}
		doc.State, doc.Freed, doc.Released = nil, nil, ""
		return true, nil
	})
}

// sweep removes the parts that a change of the document leaves unused: the parts of the previous state, and of failed
// writes. A write that has read the version before the change, or an earlier version, can't succeed any more. This
// node's state may not show all of these parts yet; a later change then removes them.
func (d *dialect) sweep(c echo.Context, t target, changed document) {
	var unused []string
	d.Reads.View(c, func(m *fsm.Machine) {
		begin := folders(t.name)
		for item := range m.ItemsAfter(begin, "") {
			folder, _, _ := strings.Cut(item.Name[len(begin):], "/")
			if version, ok := versionOf(folder); !ok || version > changed.version {
				continue
			}
			if changed.State != nil && folder == changed.State.Folder || len(unused) > 0 && unused[len(unused)-1] == folder {
				continue
			}
			if unused = append(unused, folder); len(unused) == maxSwept {
				return
			}
		}
	})
	for _, folder := range unused {
		d.remove(c, t, folder)
	}
}

// remove deletes a folder of parts. If that fails, the next change removes it.
func (d *dialect) remove(c echo.Context, t target, folder string) {
	if _, err := d.do(c, fsm.ItemDeleteAll{Prefix: folders(t.name) + folder + "/"}); err != nil {
		d.Config.Logger.Debug("parts of a state are left", exchange.LogPairs(c, "name", t.name, "folder", folder, "error", err)...)
	}
}

package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

const sinceForm = `The id of an event of all cells has the id of an event for each cell, as "1:907.2,2:33.1"; 0 stands for all events that are kept.`

// eventsOf returns the subject of a stream of events: the one cell that has all selected names and sessions, or all
// cells.
func (a *routedRequest) eventsOf() subject {
	query := a.r.URL.Query()
	s := subject{names: query["name"], sessions: query["session"]}
	if query.Has("prefix") {
		beginning := query.Get("prefix")
		s.below = &beginning
	}
	if _, err := a.table.cellOf(s); len(s.sessions) > 0 || err == nil && len(s.names)+len(query["prefix"]) > 0 {
		return s // also to refuse it: other cells don't know the session
	}
	return subject{whole: (*routedRequest).events}
}

// maxWaiting bounds the blocks that are kept until each cell has sent its first block.
const maxWaiting = 10_000

// block is a part of a stream, up to an empty line.
type block struct {
	cell  int
	lines [][]byte
	err   error // the stream has ended
}

// events merges the streams of all cells into one. Each id in it consists of the last ids of all cells, so that a client
// can resume all of them.
func (a *routedRequest) events() error {
	query := a.r.URL.Query()
	since, err := a.since(cmp.Or(a.r.Header.Get("Last-Event-ID"), query.Get("since")))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(a.r.Context())
	defer stop()
	blocks, begun := make(chan block), []*reply{}
	for i, c := range a.table.All() {
		if query.Del("since"); since != nil {
			query.Set("since", since[i])
		}
		r := a.copyFor(ctx, query.Encode())
		r.Header.Del("Last-Event-ID")
		response, err := a.table.nodes[c.Number].RoundTrip(r)
		if err != nil {
			return unserved(r, err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, bodyBytes)) // a part of a refusal is better than no refusal
			a.relay(&reply{c.Number, response.StatusCode, response.Header, body})
			return nil
		}
		begun = append(begun, &reply{header: response.Header})
		go readBlocks(ctx, c.Number, response.Body, blocks)
	}
	a.allowPages(begun)
	header := a.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // a proxy in front must not buffer events
	header.Set(exchange.HeaderRequest, a.r.Header.Get(exchange.HeaderRequest))
	if a.w.WriteHeader(http.StatusOK); a.r.Method == http.MethodHead {
		return nil
	}
	a.merge(ctx, blocks)
	return nil
}

// since splits an id into the ids of the cells, or returns nil if the stream begins now.
func (a *routedRequest) since(id string) (ids []string, err error) {
	if id == "" {
		return nil, nil
	}
	found := map[string]string{}
	for text := range strings.SplitSeq(id, ",") {
		number, at, ok := strings.Cut(text, ":")
		if !ok && id != "0" {
			return nil, exchange.Invalid("since", sinceForm)
		}
		found[number] = at
	}
	for _, c := range a.table.All() {
		at, known := found[strconv.Itoa(c.Number)]
		switch {
		case id == "0":
			at = "0"
		case !known || len(found) != len(a.table.All()):
			return nil, exchange.NewProblem("history-gone", "The id is of other cells than there are now. Read the state again, and follow from now on.")
		}
		ids = append(ids, at)
	}
	return ids, nil
}

// merge writes the blocks of all cells to the client. It begins once it has an id of each cell, and ends with the first
// stream that ends, with the client or with ctx.
func (a *routedRequest) merge(ctx context.Context, blocks <-chan block) {
	ids := map[int]string{}
	connection := http.NewResponseController(a.w)
	var waiting []block
	for {
		var b block
		select {
		case b = <-blocks:
		case <-ctx.Done():
			return
		}
		if b.err != nil {
			return // the client goes on elsewhere, or here
		}
		if _, known := ids[b.cell]; !known {
			if ids[b.cell] = b.id(); len(ids) == len(a.table.All()) {
				_, _ = io.WriteString(a.w, "retry: 1000\nid: "+a.idOf(ids)+"\n\n") // an error shows below
			}
		} else if waiting = append(waiting, b); len(waiting) > maxWaiting {
			return // a cell has not sent an event yet
		}
		if len(ids) < len(a.table.All()) {
			continue
		}
		for _, w := range waiting {
			ids[w.cell] = cmp.Or(w.id(), ids[w.cell])
			if !w.isOf(a.table) {
				continue
			}
			if _, err := a.w.Write(w.text(a.idOf(ids))); err != nil {
				return
			}
		}
		waiting = waiting[:0]
		if connection.Flush() != nil {
			return
		}
	}
}

// idOf joins the ids of the cells.
func (a *routedRequest) idOf(ids map[int]string) string {
	var parts []string
	for _, c := range a.table.All() {
		parts = append(parts, strconv.Itoa(c.Number)+":"+ids[c.Number])
	}
	return strings.Join(parts, ",")
}

// readBlocks reads a stream and sends its blocks, until the stream or ctx ends.
func readBlocks(ctx context.Context, cell int, body io.Reader, blocks chan<- block) {
	lines := bufio.NewReader(body)
	b := block{cell: cell}
	for b.err == nil {
		var line []byte
		if line, b.err = lines.ReadBytes('\n'); b.err == nil && len(line) > 1 {
			b.lines = append(b.lines, line)
			continue
		}
		select {
		case blocks <- b:
			b.lines = nil
		case <-ctx.Done():
			return
		}
	}
}

// id returns the id in a block, or "" if the block has no id.
func (b *block) id() (id string) {
	for _, line := range b.lines {
		if text, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			id = string(bytes.TrimSpace(text))
		}
	}
	return id
}

// isOf reports whether the name of the event belongs to the block's cell. While a name moves, two cells have it.
func (b *block) isOf(t *table) bool {
	for _, line := range b.lines {
		var event struct{ Semaphore, Item string }
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if ok && json.Unmarshal(data, &event) == nil && event.Semaphore+event.Item != "" {
			return t.OfName(cmp.Or(event.Semaphore, event.Item)).Number == b.cell
		}
	}
	return true
}

// text returns the block with its id replaced.
func (b *block) text(id string) []byte {
	var out []byte
	for _, line := range b.lines {
		if bytes.HasPrefix(line, []byte("id: ")) {
			line = []byte("id: " + id + "\n")
		}
		out = append(out, line...)
	}
	return append(out, '\n')
}

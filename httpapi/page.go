package httpapi

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/signalbox/signalbox/fsm"
)

const (
	defaultPage = 100
	maxPage     = 1000
	// pageRecords and pageBytes bound what one page of sessions shows, since a
	// single session may have thousands of leases and requests, with long names. A
	// page is ended early, after the session that goes beyond one of them.
	pageRecords = 10_000  // leases, semaphores of requests, and entries
	pageBytes   = 4 << 20 // of text, as it is written where nothing is escaped
)

// A cursor is the last member that the page before has shown, wrapped so that
// clients don't build on it: a kind, then the name or the id.
const (
	cursorName    byte = 'n'
	cursorSession byte = 's'
)

var cursorText = base64.RawURLEncoding.Strict()

func nameCursor(last string) string {
	return cursorText.EncodeToString(append([]byte{cursorName}, last...))
}

func sessionCursor(last uint64) string {
	return cursorText.EncodeToString(binary.BigEndian.AppendUint64([]byte{cursorSession}, last))
}

// decodeCursor takes a cursor in its only spelling: base64 skips line ends.
func decodeCursor(cursor string) ([]byte, bool) {
	data, err := cursorText.DecodeString(cursor)
	return data, err == nil && cursorText.EncodeToString(data) == cursor
}

// parseNameCursor answers the name to go on after; "" begins.
func parseNameCursor(cursor string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	data, ok := decodeCursor(cursor)
	if !ok || len(data) < 2 || data[0] != cursorName || !fsm.ValidName(string(data[1:])) {
		return "", badCursor()
	}
	return string(data[1:]), nil
}

// parseSessionCursor answers the id to go on after; 0 begins.
func parseSessionCursor(cursor string) (after uint64, err error) {
	if cursor == "" {
		return 0, nil
	}
	data, ok := decodeCursor(cursor)
	if !ok || len(data) != 9 || data[0] != cursorSession {
		return 0, badCursor()
	}
	after = binary.BigEndian.Uint64(data[1:])
	if after == 0 {
		return 0, badCursor()
	}
	return after, nil
}

func badCursor() error {
	return invalid("cursor", "This is no cursor of this list. Pass on what next was, unchanged.")
}

// page reads ?limit= and ?cursor=.
func (q query) page() (limit int, cursor string, err error) {
	n, err := q.number("limit", defaultPage, 1, maxPage)
	if err != nil {
		return 0, "", err
	}
	cursor, given := q.text("cursor")
	if given && cursor == "" {
		return 0, "", badCursor()
	}
	return int(n), cursor, nil
}

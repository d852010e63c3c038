package reads

import (
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// FuzzCursor: any text is refused or is exactly the cursor of one name or number.
func FuzzCursor(f *testing.F) {
	for _, cursor := range []string{"", "bg", nameCursor("db"), nameCursor("é/ "), *numberCursor(CursorSession, 1), *numberCursor(cursorHolder, 1<<64-1), "!!", "bmE="} {
		f.Add(cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		if after, err := parseNameCursor(cursor); err == nil && cursor != "" {
			if !fsm.ValidName(after) || nameCursor(after) != cursor {
				t.Fatalf("%q gives %q", cursor, after)
			}
		}
		for _, kind := range []byte{CursorSession, cursorHolder, cursorWaiter, cursorLease} {
			if after, err := parseNumberCursor(kind, cursor); err == nil && cursor != "" {
				if after == 0 || *numberCursor(kind, after) != cursor {
					t.Fatalf("%q gives %d", cursor, after)
				}
			}
		}
	})
}

//go:build unix

package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// size returns the size of the terminal w, or 0 and 0 if w is not a terminal.
func size(w io.Writer) (rows, columns int) {
	if file, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil {
			return int(size.Row), int(size.Col)
		}
	}
	return 0, 0
}

//go:build !unix

package cli

import "io"

// size returns 0 and 0: this system does not show the size of a terminal.
func size(io.Writer) (rows, columns int) { return 0, 0 }

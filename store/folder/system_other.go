//go:build !unix

package folder

import (
	"errors"
	"os"
)

var (
	errLocked      = errors.New("the file is locked")
	errUnsupported = errors.New("a node keeps its data on Linux, macOS and BSD alone")
)

// lock refuses: without a lock two processes could write to one folder.
func lock(*os.File, bool) error { return errUnsupported }

func freeBytes(string) (uint64, error) { return 0, errUnsupported }

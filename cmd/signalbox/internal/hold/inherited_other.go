//go:build !linux || !(amd64 || arm64)

package hold

import "syscall"

// ignoredAtStart returns no signal: on this system, only Go's report is known (see ignoredByCaller).
func ignoredAtStart() []syscall.Signal { return nil }

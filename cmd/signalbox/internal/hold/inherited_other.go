//go:build !linux || !(amd64 || arm64)

package hold

import "syscall"

// ignoredAtStart returns no signal: this system does not say more than Go does.
func ignoredAtStart() []syscall.Signal { return nil }

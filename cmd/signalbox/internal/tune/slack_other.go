//go:build !linux

package tune

// Slack has no effect on this system.
func Slack() {}

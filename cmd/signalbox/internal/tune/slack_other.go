//go:build !linux

package tune

// Slack does nothing: the system has no such setting.
func Slack() {}

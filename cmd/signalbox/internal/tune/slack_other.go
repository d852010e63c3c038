//go:build !linux

package tune

// Slack leaves the process as it is: the system has no such setting.
func Slack() {}

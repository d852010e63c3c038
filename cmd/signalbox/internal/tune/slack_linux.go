package tune

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Slack sets the timer slack of all threads. A thread inherits its slack from the thread that starts it, but the
// runtime's threads start before main. So Slack sets the slack of the main thread and executes the program again. It
// returns in the second execution, or if the slack must stay or can't be set. main calls it before the process opens a
// file.
func Slack() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Getenv(slackVariable) != "" || slackOfThread() != usualSlack {
		return
	}
	program, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0) != nil {
		return
	}
	_ = os.Setenv(slackVariable, "1") // no third execution, even if the slack is not inherited
	_ = syscall.Exec(program, os.Args, os.Environ())
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0) // Exec has failed: go back, so that all threads have the same slack
}

// slackOfThread returns the slack of the calling thread, or 0 if it is not known.
func slackOfThread() int {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return slack
}

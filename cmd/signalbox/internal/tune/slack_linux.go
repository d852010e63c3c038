package tune

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Slack gives all threads of the process the timer slack of a node. A thread inherits its slack from the thread
// that starts it, and the runtime's threads are older than main, so Slack executes the program again. It
// returns in that second life, or if the slack is to stay or can't be set. main calls it before the process has
// opened any file.
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
	_ = os.Setenv(slackVariable, "1") // no third life, even if the system forgets the slack
	_ = syscall.Exec(program, os.Args, os.Environ())
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0) // Exec has failed: all threads stay alike
}

// slackOfThread is the slack of the calling thread; 0 where it is unknown.
func slackOfThread() int {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return slack
}

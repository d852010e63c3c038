package tune

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Slack gives all threads of the process the timer slack of a node. A thread inherits its slack from the
// one that starts it, and the runtime's are older than main, so Slack executes the program again: it returns
// in that second life, or where the slack is to stay. It is to be called before the process has
// opened any file.
func Slack() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Getenv(slackVariable) != "" || slackOfThread() != usualSlack {
		return
	}
	program, err := os.Executable()
	// The variable ends the second life's attempt, should the system forget the slack.
	if err == nil && os.Setenv(slackVariable, strconv.Itoa(timerSlack)) == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0) == nil {
		_ = syscall.Exec(program, os.Args, os.Environ()) // returns when it fails
	}
}

// slackOfThread is the slack of the calling thread; 0 where it is unknown.
func slackOfThread() int {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return slack
}

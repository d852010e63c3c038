package tune

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// usualSlack and timerSlack are how many nanoseconds longer than it asks a thread may sleep, so that the
	// kernel can join wake-ups: what Linux gives each process, and what a node needs. Go's
	// monitor thread sleeps for 20 µs at a time while a process is busy now and then, as a node is:
	// it wakes up every 70 µs, and with this slack every 220 µs. It then finds a
	// processor that waits for a disk that much later.
	usualSlack = 50_000
	timerSlack = 200_000
	// slackVariable in the environment says that the slack is decided: by an operator, or by the process itself.
	slackVariable = "SIGNALBOX_TIMER_SLACK"
)

// Slack gives all threads of the process the timer slack of a node. A thread inherits its slack from the
// one that starts it, and the runtime's are older than main, so Slack executes the program again: it returns
// in that second life, or where nothing is to be changed. It is to be called before the process has
// opened anything.
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

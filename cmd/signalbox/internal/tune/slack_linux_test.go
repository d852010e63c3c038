package tune

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// asChild in the environment makes the test binary call Slack and print the slacks of its threads.
const asChild = "SIGNALBOX_TEST_SLACK"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	Slack()
	var group sync.WaitGroup
	var together sync.WaitGroup // each goroutine has a thread of its own
	together.Add(8)
	lines := make(chan string, 8)
	for range 8 {
		group.Go(func() {
			runtime.LockOSThread()
			together.Done()
			together.Wait()
			lines <- strconv.Itoa(slackOfThread())
		})
	}
	group.Wait()
	close(lines)
	for line := range lines {
		os.Stdout.WriteString(line + "\n")
	}
}

// slacks starts a child under a thread with a slack and with variables, and returns the slacks of its threads.
func slacks(t *testing.T, inherited int, variables ...string) []string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(inherited), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0) }()
	child := exec.Command(os.Args[0], "an argument", "-another")
	child.Env = append(append(os.Environ(), asChild+"=1"), variables...)
	printed, err := child.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(printed))
}

// TestSlack: each thread of a process has the slack of a node, unless the process was
// started with another one, or with the variable.
func TestSlack(t *testing.T) {
	for name, c := range map[string]struct {
		inherited int
		variables []string
		want      int
	}{
		"as usual":              {usualSlack, nil, timerSlack},
		"a service manager's":   {100_000, nil, 100_000},
		"already a node's":      {timerSlack, nil, timerSlack},
		"decided by a variable": {usualSlack, []string{slackVariable + "=0"}, usualSlack},
		"an empty variable":     {usualSlack, []string{slackVariable + "="}, timerSlack},
	} {
		t.Run(name, func(t *testing.T) {
			if got := slacks(t, c.inherited, c.variables...); len(got) != 8 || slices.ContainsFunc(got, func(s string) bool { return s != strconv.Itoa(c.want) }) {
				t.Errorf("%v, want %d", got, c.want)
			}
		})
	}
}

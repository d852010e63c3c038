package tune

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { children["slack"] = slackChild }

// slackChild prints its arguments, the variable, and the slacks of eight threads and of those that the system shows.
func slackChild() {
	Slack()
	fmt.Printf("%q %s\n", strings.Join(os.Args[1:], ","), os.Getenv(slackVariable))
	var group, together sync.WaitGroup // each goroutine has another thread
	together.Add(8)
	slacks := make([]int, 8)
	for i := range slacks {
		group.Go(func() {
			runtime.LockOSThread()
			together.Done()
			together.Wait()
			slacks[i] = slackOfThread()
		})
	}
	group.Wait()
	threads, _ := filepath.Glob("/proc/self/task/*")
	for _, thread := range threads { // the runtime's own, too
		shown, err := os.ReadFile(filepath.Join("/proc", filepath.Base(thread), "timerslack_ns"))
		if slack, failed := strconv.Atoi(strings.TrimSpace(string(shown))); err == nil && failed == nil { // else not permitted
			slacks = append(slacks, slack)
		}
	}
	for _, slack := range slacks {
		fmt.Println(slack)
	}
}

// TestSlack: each thread of a process has the timer slack of a node, unless the process was started with another slack,
// or with the variable. The process keeps its arguments.
func TestSlack(t *testing.T) {
	for name, c := range map[string]struct {
		inherited int
		variable  string
		want      int
		second    bool // the program was executed again
	}{
		"as usual":            {usualSlack, "", timerSlack, true},
		"a service manager's": {100_000, "", 100_000, false},
		"already a node's":    {timerSlack, "", timerSlack, false},
		"kept":                {usualSlack, "yes", usualSlack, false},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(c.inherited), 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			got := child(t, "slack", slackVariable+"="+c.variable)
			if err := unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			want := []string{`"an`, `argument,-another"`}
			if c.second {
				want = append(want, "1")
			} else if c.variable != "" {
				want = append(want, c.variable)
			}
			if len(got) < len(want)+8 || !slices.Equal(got[:len(want)], want) {
				t.Fatalf("%q, want %q and slacks", got, want)
			}
			if slices.ContainsFunc(got[len(want):], func(s string) bool { return s != strconv.Itoa(c.want) }) {
				t.Errorf("%v, want %d", got[len(want):], c.want)
			}
		})
	}
}

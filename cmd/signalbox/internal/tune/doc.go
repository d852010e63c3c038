// Package tune fits the Go runtime and the kernel's timers to a node: how far the heap grows before
// it is collected, and how exactly the node's threads wake up.
//
// It changes settings of the process alone, and no behaviour of a node depends on them: where the
// system does not allow one, the process goes on without it. The operator's own settings win: GOGC,
// SIGNALBOX_KEEP_TIMER_SLACK, a service manager's timer slack. Function main of the program calls it; it imports no
// package of ours.
//
//   - tune.go: the values; a large heap is collected more often, a small one less often.
//   - slack_linux.go: the kernel joins the wake-ups of threads that sleep.
//   - slack_other.go: other systems have no such setting.
package tune

// Package tune adjusts the Go runtime and the kernel's timers for a node: how far the heap grows before a collection,
// and how exactly the node's threads wake up.
//
// It only changes settings of the process, on which no behaviour of a node depends. If the system refuses a setting,
// the process continues without it. The operator's settings win: GOGC, SIGNALBOX_KEEP_TIMER_SLACK, a service manager's
// timer slack. The function main of the program calls it. It imports no package of the project.
//
//   - tune.go: the values; a large heap is collected more often, a small one less often.
//   - slack_linux.go: timer slack, with which the kernel joins the wake-ups of sleeping threads.
//   - slack_other.go: the same for systems without timer slack.
package tune

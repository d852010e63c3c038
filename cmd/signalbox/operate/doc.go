// Package operate is the verbs for the terminal that work on a running cluster: they look
// at semaphores and sessions, change them, and look after the members.
//
// A verb is one value of the type verb: its words, its flags and its function, which calls
// package client. It prints a table, JSON or names, see package terminal. A failure ends
// with the exit statuses of "signalbox run": 2 for wrong flags, 3 for permits that are not
// free, 4 for a session that is over, 5 for a refusal, 6 if no node can be reached,
// 7 if a part of the cluster is down; and 1 for the rest. A verb that can't be undone asks first.
//
// The package is called by cmd/signalbox. It holds no lease itself: "signalbox run" does.
//
//   - verb.go: what verbs have in common; exit statuses
//   - complete.go: names of semaphores and sessions, from the cluster, for a shell to complete
//   - lists.go: --limit, lists of holders and waiters in pages
//   - semaphores.go: ls, show, create, resize, rm, up, down
//   - sessions.go: sessions, acquire, renew, release, revoke, end
//   - why.go: why a request waits
//   - live.go: watch, events, top
//   - items.go: item, and below it ls, get, put, rm
//   - members.go: members, leader, level; what is wrong with a cluster
//   - status.go: status
package operate

// Package hold runs a command while it holds permits of a semaphore: it is what
// "signalbox run" does, without the command line.
//
// New checks everything that can be checked without a request. Holder.Run waits for
// the permits, runs the command in a process group of its own, renews the lease
// meanwhile, and gives the permits back. It promises that no process of the group
// runs when the cluster may grant the permits to another client, unless a process
// hangs in the kernel, or leaves the group. Every failure has an exit status, see
// Exit.
//
// The package is called by cmd/signalbox, which reads flags and variables. It knows
// the service through package client alone. A Holder runs once, and New and Run are
// called one after the other; a process has one Holder, since Run makes the process
// the parent of orphans.
//
//   - hold.go: Config and its checks, Run, exit statuses, the signals
//   - acquire.go: permits before the command, and the release after it
//   - guard.go: ends the command before the lease could be granted anew
//   - group.go: the command as a process group, and its terminal
//   - parent_linux.go: ties the command to this process, as only Linux can
//   - parent_other.go: no ties on other systems
package hold

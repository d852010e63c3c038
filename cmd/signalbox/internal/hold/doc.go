// Package hold runs a command while this process holds permits of a semaphore, or leads by
// an item: it is what "signalbox run" and "signalbox elect" do, without the command line.
//
// New checks everything that can be checked without a request. Holder.Run waits until it
// holds, runs the command in a separate process group, renews the session while it runs, and
// gives back what it holds. It promises that no process of the group runs when the cluster
// may grant the same to another client, unless a process hangs in the kernel, or leaves the
// group. Every failure has an exit status, see package cli.
//
// The package is called by cmd/signalbox, which reads flags and variables. It knows the
// service through the packages client, client/items and client/operator. A Holder runs once, and New and Run
// are called one after the other; a process has one Holder, since Run makes the process the
// parent of orphans.
//
//   - config.go: Config
//   - hold.go: the checks of a Config, Run, the signals
//   - hold_other.go: refusals, on systems without process groups
//   - acquire.go: permits or an item before the command, and the release after it, also of a lost hold
//   - guard.go: ends the command before another client could be granted the same
//   - group.go: the command as a process group, and its terminal
//   - inherited_linux.go: the signals that this process's caller ignored
//   - inherited_other.go: not known on other systems
//   - parent_linux.go: ties the command to this process, as only Linux can
//   - parent_other.go: no ties on other systems
package hold

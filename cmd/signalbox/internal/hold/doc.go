// Package hold runs a command while this process holds permits of a semaphore, or leads by holding an item. It
// implements "signalbox run" and "signalbox elect", without their flags.
//
// New checks everything that needs no request. Holder.Run acquires, runs the command in a separate process group,
// renews the session meanwhile, and releases at the end. It promises that no process of the group runs any more when
// the cluster may grant the permits or the item to another client. Exceptions are a process that hangs in the kernel,
// and a process that leaves the group. Every failure has an exit status: see package cli.
//
// cmd/signalbox calls the package, and reads flags and variables. The package uses client, client/items and
// client/operator. A Holder runs once: call New, then Run. A process has only one Holder, because Run makes the process
// the parent of orphans.
//
//   - config.go: Config
//   - hold.go: the checks of a Config, Run, the signals
//   - hold_other.go: errors, on systems without process groups
//   - acquire.go: acquires permits or an item before the command, and releases them after it, even if they were lost
//   - guard.go: ends the command before another client may be granted the permits or the item
//   - group.go: the command as a process group, and its terminal
//   - inherited_linux.go: the signals that this process's parent made it ignore
//   - inherited_other.go: the same for systems that don't show these signals
//   - parent_linux.go: ends the command with this process, which only Linux can do
//   - parent_other.go: the same for other systems, without an effect
package hold

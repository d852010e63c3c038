// Package supervisor notifies the service manager that has started this process: systemd, or
// another one with its protocol (sd_notify), where each notification is a datagram to the
// socket that NOTIFY_SOCKET names. Without such a socket it has no effect.
//
// A watchdog of the supervisor hears from a node only while the node makes progress. The
// package ends no process itself. A Progress is for one goroutine. The command serve calls it; it imports
// cluster, fsm and internal/wake.
//
//   - supervisor.go: Supervisor, its notifications and its watchdog; Progress of a node.
package supervisor

// Package supervisor sends notifications to the service manager that has started this process: systemd, or another
// manager with the sd_notify protocol. A notification is a datagram to the socket in the variable NOTIFY_SOCKET.
// Without this variable the package has no effect.
//
// A node notifies the manager's watchdog only while it makes progress. The package itself ends no process. Only one
// goroutine may use a Progress. The command serve calls the package, which imports cluster, fsm and internal/wake.
//
//   - supervisor.go: Supervisor, its notifications and its watchdog; Progress of a node.
package supervisor

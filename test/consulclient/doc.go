// Package consulclient shows that the clients of Consul work on Signalbox as they are: the locks
// and semaphores of Consul's Go client, the renewals of its sessions, the watches of its keys. All of it is
// tests, against three processes of the program that the environment variable SIGNALBOX names:
//
//	make consul
//
// The folder is a separate module, so that the program does not depend on Consul's client. "./..." in
// the root leaves it out.
//
//   - TestConsulClients: what Consul's own tests ask of these, at each node; again after the
//     leader was killed, and after a rolling restart, under contenders that must exclude each other.
//   - TestHerd: log entries and refused writes of a hold when many wait, and how long they wait.
package consulclient

// Command comparison measures Signalbox beside the systems that are used in its place: etcd, ZooKeeper,
// NATS JetStream and Redis. `make comparison` runs it; docs/performance.md has its table.
//
// Each system runs with the settings that it ships with, on loopback, with files in one temporary folder.
// Two settings are ours: Redis has `appendfsync always` and NATS `sync_interval: always`, since without them a reply
// promises less than a reply of the others. A system whose program is not installed is left out.
//
// A client acquires a permit and releases it, again and again. In the loads "own" each client has a name for itself,
// in the loads "hot" all share one permit. The systems take turns in each round, because the speed of a shared machine
// drifts, and the median of the rounds counts. The load uses the usual Go client of each system, either one client for
// each goroutine, or one client that all goroutines of the process share.
//
// The module is separate, so that the program does not depend on the clients of other systems.
//
// # Files
//
//   - main.go: flags, rounds and the table
//   - load.go: one measurement
//   - failover.go: kills of leaders (-kills)
//   - process.go: programs, their ports and their processor time
//   - signalbox.go: three nodes, and one
//   - etcd.go: its mutex
//   - zookeeper.go: its recipe of locks
//   - jetstream.go: a key of NATS
//   - redis.go: a script in Lua
package main

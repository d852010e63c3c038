// Package simulation runs the whole service in virtual time, under faults that a seed picks,
// and checks what happened. It has tests alone: real nodes (package cluster) behind the real
// HTTP handlers (httpapi), called by the real Go client (client) and by users of plain HTTP and of two
// dialects (test/checks), on the network in memory (test/memnet), in one testing/synctest bubble
// for each episode.
//
// An episode is up to one virtual hour with clients and faults of one seed. At its end the
// faults heal, and three layers are checked, by test/checks:
//
//   - the log: the events of all nodes are equal, and replayed by a checker of its own they
//     give no more permits than exist, rising tokens and indexes, lines served in order,
//     and no expiry before its deadline;
//   - linearizability: what clients saw of each semaphore has an order, by porcupine, in
//     which a lease expires only once its ttl could have passed;
//   - real time: the leases that clients count on never exceed the permits, and a resource
//     that checks tokens takes no stale write and refuses no valid one.
//
// Then all requests must be over, every semaphore can be acquired whole, and all nodes have
// the same state hash. An episode with too few operations fails.
//
// A seed repeats the schedule of faults and clients, not the interleaving of goroutines:
// "make simulate SEED=… HOURS=1" several times, if once shows nothing.
package simulation

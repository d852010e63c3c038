// Package simulation runs the whole service in virtual time, under faults that depend on a seed, and checks the
// results. It has only tests: real nodes (package cluster) behind the real HTTP handlers (httpapi), called by the real
// Go client (client) and by users of plain HTTP and of two dialects (test/checks), on the network in memory
// (test/memnet), in one testing/synctest bubble for each episode.
//
// An episode is up to one virtual hour with the clients and faults of one seed. At its end the faults heal, and
// test/checks checks three layers:
//
//   - the log: the events of all nodes are equal. A separate checker replays them and finds
//     no more permits than exist, rising tokens and indexes, lines served in order,
//     and no expiry before its deadline;
//   - linearizability: porcupine finds an order of what clients saw of each semaphore, in
//     which a lease expires only once its ttl could have passed;
//   - real time: the leases that clients count on never exceed the permits, and a resource
//     that checks tokens accepts no stale write and refuses no valid write.
//
// Then no request may be left, every semaphore can be acquired with all permits, and all nodes have the same state
// hash. An episode with too few operations fails.
//
// A seed determines the schedule of faults and clients, but not the interleaving of goroutines. If "make simulate
// SEED=… HOURS=1" does not repeat a failure, run it several times.
package simulation

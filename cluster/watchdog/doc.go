// Package watchdog looks after the troubles of a node that Raft does not see: a write to
// the disk that hangs, a disk that runs full, a transfer of leadership that never ends,
// and a table of idempotency keys that runs full.
//
// It ends the process when a write hangs for half a minute or Raft is wedged, has a
// leader without room hand over, and writes to the log what an operator must see. One
// goroutine, [Run], does all of it and calls the functions of [Config] and
// [Leader].
//
//   - watchdog.go: the checks, how often they run, and the reactions
//
// Package cluster calls it. It imports the bounded waits (internal/wake) and types of packages fsm and
// store. It touches neither the disk, nor Raft, nor the network.
package watchdog

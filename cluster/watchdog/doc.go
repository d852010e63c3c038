// Package watchdog handles the failures of a node that Raft does not notice: a write to the disk that hangs, a disk
// that becomes full, a transfer of leadership that never ends, and a table of idempotency keys that becomes full.
//
// It ends the process when a write hangs for half a minute, the data folder was deleted or a transfer never ends, makes a leader without room hand
// leadership over, and logs what an operator must see. One goroutine, [Run], does all of it and calls the functions of
// [Config] and [Leader].
//
//   - watchdog.go: the checks, how often they run, and the reactions
//
// Package cluster calls it. It imports internal/wake for pauses, and types of packages fsm and store. It uses neither
// the disk, nor Raft, nor the network directly.
package watchdog

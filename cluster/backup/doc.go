// Package backup writes the cluster's state to a file, and restores the cluster's state from a file. It guarantees:
//
//  1. A [Backup] is the state at one index. Entries that are applied while it is written do not
//     change it. To take it delays entries for a moment; to write it delays no entry.
//  2. [Restorer.Restore] changes the state only after it has read the whole file and found every
//     checksum right and every invariant of the state kept.
//  3. A restored state comes into force on all nodes at the same index of the log, or on no
//     node. No caller sees it before a majority has it.
//  4. No token, place or epoch is given out twice, neither before the restore nor after it.
//  5. A [Keeper] leaves only complete files under their names, and removes the
//     oldest file only after a newer file is complete.
//
// Package store/archive defines the format of the files. fsm.Machine.Succeed defines how a restored state follows the
// present state. Package cluster makes the Restorer of a node whose Raft runs; cmd/signalbox runs a Keeper;
// httpapi/v1/snapshot writes backups to clients. The package imports fsm, store/archive, internal/wake, cluster/outcome
// and cluster/replica. All types may be used by any number of goroutines.
//
//   - backup.go: Backup, and Read, which checks and reads a backup
//   - restore.go: Restorer: replaces the cluster's state
//   - uncommitted_restore.go: DropUncommittedRestore, which removes a restored state that never came into force
//   - keep.go: Keeper: scheduled backups in a folder
package backup

// Package backup writes the cluster's state to a file, and restores the cluster's state from a file. It guarantees:
//
//  1. A [Backup] is the state at one index, whatever is applied while it is written. Taking
//     it delays entries for a moment; writing it delays no entry.
//  2. [Restorer.Restore] changes the state only if the whole file has been read, every checksum
//     in it is right, and its state breaks no invariant.
//  3. A restored state comes into force on every node at one index of the log, or on no node. No
//     caller sees it before a majority has it.
//  4. No token, place or epoch is given twice, neither in the history before the restore nor in the restored one.
//  5. A [Keeper] leaves only complete and verified files under their names, and removes the
//     oldest file only after a newer file is complete.
//
// Package store/archive has the format of the files, and fsm.Machine.Succeed the rule by which one state follows
// another. Package cluster makes the Restorer of a node whose Raft runs; cmd/signalbox runs a Keeper;
// httpapi/v1/snapshot writes backups to clients. It imports fsm, store/archive, internal/wake, cluster/outcome and
// cluster/replica. All types may be used by any number of goroutines.
//
//   - backup.go: Backup, and Read, which checks and reads a backup
//   - restore.go: Restorer: replaces the cluster's state
//   - headless.go: GiveUp, which removes a restored state that is not in force
//   - keep.go: Keeper: scheduled backups in a folder
package backup

// Package fsm is the deterministic state machine of Signalbox: semaphores, sessions, leases, queues of waiting requests
// (called lines), fencing tokens, idempotency keys and cluster time.
//
// # Contract
//
// [Machine.Apply] applies a log entry. It returns the results of the entry's commands, the conclusions of the waits
// that the entry ended, and the effects: every change of the state. The same entries give the same results,
// conclusions, effects and snapshots on every replica and at every replay, from the start of the log or from a
// snapshot. Therefore the package reads no clock, disk or random source, starts no goroutine, and ranges over no map
// whose order could show. The entry itself contains the leader's clock reading and the session ids that a node drew.
//
//   - Tokens rise with each grant. The tokens of the leases of one semaphore never fall.
//   - A line is served in the order of ranks. The rank of a request is the time at which it began to wait, less its
//     head start; equal times are ordered by place (a sequence number). No request overtakes the head of a line.
//   - A pool of groups has a line for each group, and serves the head of the group that uses the fewest permits.
//   - A session ends when its deadline passes, with all that it holds and waits for.
//   - A refused command leaves the state as it is, except the ttl that an acquire gives its session.
//   - A command with an idempotency key is applied once while the key is remembered.
//   - One entry applies within 50 ms of processor time, whatever the state. [EntryWeight] and [EntryBytes] bound its
//     commands. The machine bounds the work that follows from these commands, and sets [Applied.MoreDue] if
//     work is left for later entries.
//
// The package does not propose, forward, wait or speak HTTP. cluster/replica applies the entries of the Raft log. The
// other packages of the cluster, httpapi and cmd make commands and read states and results.
//
// One goroutine at a time may use a Machine, so the caller must lock out readers while it applies an entry. A [Frozen]
// copy may be read while the machine applies further entries.
//
// # Files, in reading order
//
//   - machine.go: the state and its indexes, how an entry is applied, the state hash
//   - records.go: the records, in tables of copy-on-write pages and in lists
//   - values.go: the values that commands and results share
//   - limits.go: configured limits, and bounds that no configuration changes
//   - command.go: the table of operations, commands and entries in the log, valid names and texts
//   - result.go: results, conclusions and effects
//   - codec.go: the binary format of commands, results and effects
//   - owners.go: which caller may use which session, and the limits of an owner
//   - sessions.go: sessions and their leases, from the limits to their ends
//   - memory.go: the memory of ended sessions and of revoked leases
//   - semaphores.go: finding, making and changing semaphores, and how many permits may still be taken
//   - grant.go: grantOrEnqueue, which decides about a new request, and serve, which grants to waiting requests
//   - queue.go: requests in their lines, and the withdrawal of a request
//   - settings.go: the optional settings of a semaphore
//   - lane.go: the state of a semaphore's groups (lanes), and what a session has in a group
//   - pool.go: the choice of a pool among its groups (ADR 21)
//   - fronts.go: requests for all of a list, which join the line of a pool only while they are ready in their other lines
//   - sweep.go: how a new limit reaches all groups of a semaphore, over several entries
//   - returns.go: permits that no lease holds and that come back later, and the ends of long holds (ADR 22)
//   - windows.go: permits spent in a time window, and the receipts for them
//   - slots.go: the numbers (slots) of the permits that a lease has
//   - work.go: the bounds of an entry's work (MoreDue, Cost), and expire, which ends sessions past their deadline (ADR 7)
//   - keys.go: idempotency keys
//   - marks.go: the marks that replace the keys of ended one-shots
//   - items.go: items and the sessions that hold them, deleted items whose delay still runs (tombstones), change numbers
//   - deletes.go: the memory of deleted items
//   - waitlist.go: wait lists of sessions
//   - notice.go: notices that permits are available again, for callers whose down was refused
//   - op_create.go: create a semaphore
//   - op_put.go: create or change a semaphore
//   - op_delete.go: delete a semaphore
//   - op_up.go: add permits without an owner
//   - op_down.go: take permits without an owner
//   - op_set.go: set the available permits
//   - op_open.go: open a session
//   - op_renew.go: renew sessions
//   - op_end.go: end a session
//   - op_acquire.go: acquire a lease in a session, and the rule of levels
//   - op_acquire_once.go: acquire a lease in a new one-shot session
//   - op_acquire_many.go: acquire all or any of several semaphores
//   - op_release.go: release a lease, or withdraw a request
//   - op_resize.go: give back part of a lease
//   - op_revoke.go: revoke a lease
//   - op_restore.go: restore a session with its leases
//   - op_list_add.go: add to a wait list
//   - op_list_remove.go: remove from a wait list
//   - op_list_deliver.go: deliver the ready entries of a wait list
//   - op_notice_done.go: remove notices
//   - op_start_term.go: begin a leader's term
//   - op_raise_level.go: raise the feature level
//   - op_raise_tokens.go: raise the last token above the tokens of another cluster
//   - op_open_holder.go: open a session with terms for the items that it holds
//   - op_item_put.go: write an item
//   - op_item_acquire.go: give an item to a session
//   - op_item_release.go: end the hold of a session on an item
//   - op_item_delete.go: delete an item
//   - op_item_delete_all.go: delete the items below a prefix
//   - op_group_put.go: give a group a limit
//   - op_free_lost.go: return the permits of a lost lease
//   - view.go: what readers see of semaphores, keys and notices
//   - view_sessions.go: what readers see of sessions
//   - view_items.go: what readers see of items
//   - snapshot.go: frozen copies, and the frame of a snapshot
//   - snapshot_codec.go: the records of a snapshot
//   - restore.go: a machine from a snapshot
//   - succeed.go: a machine from a backup that replaces a running cluster
//   - check.go: the invariants of the state
//   - check_returns.go: the invariants of returns and slots
//   - check_owners.go: the invariants of the counts of each owner
//   - check_items.go: the invariants of items
package fsm

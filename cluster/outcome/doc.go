// Package outcome says what became of a command, or of another call to the cluster,
// that has ended: it was applied, it was certainly not applied, or either is possible.
// On that depends whether it is safe to send the command again, so the decision is made
// in one place: this is the only package that interprets Raft's errors, and a rule of the
// architecture test holds the others to that. (store/logs and cluster/raftlib return
// those that the contracts of Raft's interfaces name.)
//
// It carries no command and imports no package of ours. The packages of the cluster return
// its verdicts to each other, and its errors to their callers; httpapi compares the errors
// with these, by errors.Is. All of it is safe for concurrent use.
//
//   - errors.go: the errors that a caller may get, and what each one says about the call.
//   - verdict.go: Fate and Verdict, the outcome of one command; and the meaning of Raft's errors.
package outcome

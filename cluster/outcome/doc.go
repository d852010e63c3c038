// Package outcome classifies how a command, or another call to the cluster, has ended: it was applied, it was certainly
// not applied, or either is possible. We must know this to decide whether it is safe to send the command again. So only
// this package interprets Raft's errors, and a rule of the architecture test forbids it in all others. (store/logs and
// cluster/raftlib return the errors that the contracts of Raft's interfaces name.)
//
// It carries no command and imports no package of ours. The packages of the cluster return its verdicts to each other,
// and its errors to their callers; httpapi compares the errors by errors.Is. Everything here is safe for concurrent
// use.
//
//   - errors.go: the errors that a caller may get, and what each one says about the call.
//   - verdict.go: Fate and Verdict, the outcome of one command; and the meaning of Raft's errors.
package outcome

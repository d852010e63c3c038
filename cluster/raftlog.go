package cluster

import "github.com/hashicorp/go-hclog"

// ordinary are those of Raft's errors that say no more than that another member
// did not answer, or leads by now: each restart of a member brings some.
var ordinary = map[string]bool{
	"peer has newer term, stopping replication": true,
	"failed to appendEntries to":                true,
	"failed to pipeline appendEntries":          true,
	"failed to start pipeline replication to":   true,
	"failed to heartbeat to":                    true,
	"failed to make requestVote RPC":            true,
}

// raftLog has Raft warn of what is ordinary; whoever logs errors only, as dev
// does, is not told.
type raftLog struct{ hclog.Logger }

// Error implements [hclog.Logger].
func (l raftLog) Error(message string, pairs ...any) {
	if ordinary[message] {
		l.Logger.Warn(message, pairs...)
		return
	}
	l.Logger.Error(message, pairs...)
}

package outcome

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

func TestOfEntry(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want Fate
	}{
		"applied":         {nil, Applied},
		"not the leader":  {raft.ErrNotLeader, Refused},
		"queue full":      {raft.ErrEnqueueTimeout, Refused},
		"handing over":    {raft.ErrLeadershipTransferInProgress, Refused},
		"other term":      {ErrOtherTerm, Refused},
		"wrapped":         {fmt.Errorf("why: %w", raft.ErrNotLeader), Refused},
		"leadership lost": {raft.ErrLeadershipLost, Unknown},
		"shutdown":        {raft.ErrRaftShutdown, Unknown},
		"restored":        {raft.ErrAbortedByRestore, Unknown},
		"halted":          {fmt.Errorf("%w: why", ErrHalted), Unknown},
		"the disk":        {errors.New("input/output error"), Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OfEntry(test.err); got != (Verdict{Fate: test.want}) {
				t.Errorf("%v, want fate %d", got, test.want)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	errCause := errors.New("the cause")
	for name, test := range map[string]struct {
		verdict Verdict
		err     error
		again   bool
	}{
		"applied":              {Verdict{}, nil, false},
		"refused":              {Verdict{Fate: Refused}, ErrNotApplied, true},
		"late":                 {Verdict{Fate: Late}, ErrNotApplied, true},
		"failed":               {Failed.Because(errCause), errCause, false},
		"open":                 {Verdict{Fate: Unknown}, ErrOutcomeUnknown, false},
		"open, with its cause": {Unknown.Because(errCause), errCause, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.verdict.Err(); got != test.err {
				t.Errorf("error %v, want %v", got, test.err)
			}
			if got := test.verdict.Retryable(); got != test.again {
				t.Errorf("again: %v", got)
			}
		})
	}
}

func TestOfChange(t *testing.T) {
	errOther := errors.New("other")
	for name, test := range map[string]struct{ err, want error }{
		"committed":            {nil, nil},
		"not the leader":       {raft.ErrNotLeader, ErrNotLeader},
		"handing over":         {raft.ErrLeadershipTransferInProgress, ErrNotLeader},
		"not taken in":         {raft.ErrEnqueueTimeout, ErrNotLeader},
		"leadership lost":      {raft.ErrLeadershipLost, ErrOutcomeUnknown},
		"shutdown":             {raft.ErrRaftShutdown, ErrOutcomeUnknown},
		"another change first": {errors.New("configuration changed since 3 (latest is 4)"), ErrConfigurationChanged},
		"anything else":        {errOther, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OfChange(test.err); !errors.Is(got, test.want) || !errors.Is(got, test.err) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestNothingNew(t *testing.T) {
	if !NothingNew(fmt.Errorf("why: %w", raft.ErrNothingNewToSnapshot)) || NothingNew(raft.ErrRaftShutdown) || NothingNew(nil) {
		t.Error("only Raft's own error says that there is nothing new")
	}
}

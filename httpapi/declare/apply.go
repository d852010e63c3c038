package declare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// Node is what declaring needs of a cluster node; *cluster.Node has it.
type Node interface {
	// DoMany performs commands in order; see cluster.Node.
	DoMany(ctx context.Context, calls []cluster.Call) ([]cluster.Reply, []error)
	// Read blocks until this node's own state is as recent as asked for.
	Read(ctx context.Context, c cluster.Consistency) (cluster.Reading, error)
	// View lends the state for as long as read runs.
	View(read func(m *fsm.Machine))
}

const (
	// together is how many semaphores are compared or set at once.
	together = 256
	// again is the pause before the next attempt while the cluster can't do it.
	again = 500 * time.Millisecond
)

// Declare brings what a file declares into being: missing semaphores are made,
// other permits and levels set, nothing is removed. It blocks until all of it is
// committed, for as long as there is no leader too, or until ctx ends; then it
// answers ctx's error. It answers how many semaphores it has made or changed, and
// an error for the first that the cluster refuses, or when the node drains. It may
// be called again at any time, on any node.
func Declare(ctx context.Context, node Node, file *File) (changed int, err error) {
	for rest := file.Semaphores; len(rest) > 0; {
		part := rest[:min(together, len(rest))]
		var set int
		set, err = declarePart(ctx, node, part)
		changed += set
		var refused *refusal
		switch {
		case err == nil:
			rest = rest[len(part):]
			continue
		case ctx.Err() != nil:
			return changed, ctx.Err()
		case errors.As(err, &refused), errors.Is(err, cluster.ErrDraining):
			return changed, err
		}
		if err := pause(ctx); err != nil { // what was done is found done
			return changed, err
		}
	}
	return changed, nil
}

// refusal is a semaphore that the cluster does not take as declared.
type refusal struct {
	name   string
	result fsm.Result
}

// Error names the semaphore and what is in the way.
func (r *refusal) Error() string {
	text := fmt.Sprintf("semaphore %q can't be declared: %v", r.name, r.result.Code)
	if r.result.Rule != fsm.RuleNone {
		text += " (" + r.result.Rule.String() + ")"
	}
	return text
}

// declarePart compares some semaphores with what is there, and sets those that
// differ. A race with another writer is no matter: who comes last has said so.
func declarePart(ctx context.Context, node Node, part []Semaphore) (changed int, err error) {
	if _, err := node.Read(ctx, cluster.Consistency{}); err != nil {
		return 0, err
	}
	var calls []cluster.Call
	var names []string
	node.View(func(m *fsm.Machine) {
		for _, s := range part {
			found, exists := m.Semaphore(s.Name)
			if !exists || found.Permits != s.Permits || found.Level == nil || *found.Level != s.Level {
				calls = append(calls, cluster.Call{Command: s.put()})
				names = append(names, s.Name)
			}
		}
	})
	if len(calls) == 0 {
		return 0, nil
	}
	replies, errs := node.DoMany(ctx, calls)
	for i := range calls {
		if errs[i] != nil {
			return changed, errs[i]
		}
		if replies[i].Code != fsm.OK {
			return changed, &refusal{names[i], replies[i].Result}
		}
		changed++
	}
	return changed, nil
}

// put is the command that a declared semaphore is made or changed by. Its
// metadata stays as it is.
func (s *Semaphore) put() fsm.PutSemaphore {
	level := s.Level
	return fsm.PutSemaphore{
		Name:    s.Name,
		Permits: fsm.Change[int64]{Given: true, Value: s.Permits},
		Level:   fsm.Change[*int32]{Given: true, Value: &level},
	}
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(again)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

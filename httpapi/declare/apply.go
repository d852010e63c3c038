package declare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// Node has the methods of a cluster node that Declare calls; *cluster.Node implements it.
type Node interface {
	// DoMany performs commands in order; see cluster.Node.
	DoMany(ctx context.Context, calls []cluster.Call) ([]cluster.Reply, []error)
	// Read blocks until this node's own state is as recent as asked for.
	Read(ctx context.Context, c cluster.Consistency) (cluster.Reading, error)
	// View lends the state for as long as read runs.
	View(read func(m *fsm.Machine))
}

const (
	// declaredAtOnce is how many semaphores are compared or set at once.
	declaredAtOnce = 256
	// retryPause is the pause before the next attempt.
	retryPause = 500 * time.Millisecond
)

// Declare creates the semaphores of a file that are missing, and sets the permits, levels and settings that differ. It
// removes no semaphore. It blocks until all of them are committed, also while there is no leader, or until ctx
// ends, and then returns ctx's error. It also fails when the node drains, and for the first semaphore that the
// cluster refuses. It returns how many semaphores it has made or changed, and may be called again at any time,
// on any node.
func Declare(ctx context.Context, node Node, file *File) (changed int, err error) {
	for rest := file.Semaphores; len(rest) > 0; {
		part := rest[:min(declaredAtOnce, len(rest))]
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
		case errors.As(err, &refused), errors.Is(err, outcome.ErrDraining):
			return changed, err
		}
		select { // the next attempt finds the semaphores that are set
		case <-ctx.Done():
			return changed, ctx.Err()
		case <-time.After(retryPause):
		}
	}
	return changed, nil
}

// refusal is a semaphore that the cluster does not take as declared.
type refusal struct {
	name   string
	result fsm.Result
}

// Error names the semaphore and the refusal.
func (r *refusal) Error() string {
	text := fmt.Sprintf("semaphore %q can't be declared: %v", r.name, r.result.Code)
	if r.result.Rule != fsm.RuleNone {
		text += " (" + r.result.Rule.String() + ")"
	}
	return text
}

// declarePart compares some semaphores with the state, and sets the semaphores that differ. In a race with
// another writer the last one counts.
func declarePart(ctx context.Context, node Node, part []Semaphore) (changed int, err error) {
	if _, err := node.Read(ctx, cluster.Consistency{}); err != nil {
		return 0, err
	}
	var calls []cluster.Call
	var names []string
	node.View(func(m *fsm.Machine) {
		for _, s := range part {
			found, exists := m.Semaphore(s.Name)
			if !exists || s.differs(&found) {
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

// differs reports whether a semaphore is not as declared.
func (s *Semaphore) differs(found *fsm.SemaphoreView) bool {
	now, c := &found.Settings, &s.Settings
	return found.Permits != s.Permits || found.Level == nil || *found.Level != s.Level || now.Family != c.Family ||
		moves(c.Groups, now.Groups) || moves(c.PerGroup, now.PerGroup) || moves(c.Paused, now.Paused) ||
		moves(c.MaxWaiting, now.MaxWaiting) || moves(c.DropOldest, now.DropOldest) || moves(c.HeadStartMS, now.HeadStartMS) ||
		moves(c.WindowMS, now.WindowMS) || moves(c.CooldownMS, now.CooldownMS) || moves(c.OnLostMS, now.OnLostMS) ||
		moves(c.MaxHoldMS, now.MaxHoldMS) || moves(c.Slots, now.Slots)
}

func moves[T comparable](c fsm.Change[T], now T) bool { return c.Given && c.Value != now }

// put returns the command that makes or changes a declared semaphore. It keeps the metadata, and the
// settings that the file does not have.
func (s *Semaphore) put() fsm.PutSemaphore {
	level := s.Level
	return fsm.PutSemaphore{
		Name:    s.Name,
		Permits: fsm.Change[int64]{Given: true, Value: s.Permits},
		Level:   fsm.Change[*int32]{Given: true, Value: &level},

		Settings: s.Settings,
	}
}

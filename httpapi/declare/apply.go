package declare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// Node has the methods of a cluster node that Declare calls; *cluster.Node implements it.
type Node interface {
	// DoMany performs commands in order; see cluster.Node.
	DoMany(ctx context.Context, list []calls.Call) ([]calls.Reply, []error)
	// Read blocks until this node's own state is as recent as c requires.
	Read(ctx context.Context, c calls.Consistency) (calls.Reading, error)
	// View calls read with the state. read must not keep the state after it returns.
	View(read func(m *fsm.Machine))
}

const (
	// declaredAtOnce is how many semaphores are compared or set at once.
	declaredAtOnce = 256
	// retryPause is the pause before the next attempt.
	retryPause = 500 * time.Millisecond
)

// Declare creates the semaphores of a file that are missing, and sets the permits, levels and settings that differ. It
// removes no semaphore. It blocks until all changes are committed or refused, even while there is no leader, or until ctx
// ends; it then returns ctx's error. It also fails when the node drains. It returns how many semaphores it has created or
// changed, and the refused semaphores, which stay as they were. It may be called again at any time, on any node.
func Declare(ctx context.Context, node Node, file *File) (changed int, refused []Refusal, err error) {
	for rest := file.Semaphores; len(rest) > 0; {
		part := rest[:min(declaredAtOnce, len(rest))]
		set, refusals, err := declarePart(ctx, node, part)
		changed += set
		switch {
		case err == nil:
			rest, refused = rest[len(part):], append(refused, refusals...)
			continue
		case ctx.Err() != nil:
			return changed, refused, ctx.Err()
		case errors.Is(err, outcome.ErrDraining):
			return changed, refused, err
		}
		select { // the next attempt finds the semaphores that are set
		case <-ctx.Done():
			return changed, refused, ctx.Err()
		case <-time.After(retryPause):
		}
	}
	return changed, refused, nil
}

// Refusal is a semaphore that the cluster refuses as declared.
type Refusal struct {
	Semaphore string
	Key       string // of the semaphore's table; "": no single key
	Reason    string // what is wrong, or what is allowed
}

// conflicts has the refusal for each rule that two keys break together, or a key and a setting of the semaphore.
var conflicts = map[fsm.Rule]Refusal{
	fsm.RulePerGroup: {"", "per_group", `it needs groups = "request" or "owner"`},
	fsm.RulePermits:  {"", "max", `"none" needs groups and per_group`},
	fsm.RulePaused:   {"", "paused", `a semaphore with max = "none" can't be paused`},
	fsm.RuleWhenFull: {"", "when_full", `"drop-oldest" needs max_waiting above 0`},
	fsm.RuleWindow:   {"", "", "window goes with none of slots, cooldown, on_lost and max_hold"},
	fsm.RuleSlots:    {"", "slots", `a semaphore with max = "none" has no slots`},
}

// refusalOf explains the refusal of a semaphore.
func refusalOf(name string, result *fsm.Result) Refusal {
	r, ok := conflicts[result.Rule]
	switch {
	case ok:
	case result.Code == fsm.Overflow:
		r = Refusal{Key: "max", Reason: "too many permits: slots = true has up to 1048576, max with what up and down have added up to 2^63 - 1"}
	case result.Code == fsm.RequestsWaiting:
		r = Refusal{Key: "groups", Reason: `groups, and whether max is "none", change only while no request waits`}
	default:
		r = Refusal{Reason: fmt.Sprintf("%v %v", result.Code, result.Rule)}
	}
	r.Semaphore = name // state: of this copy
	return r
}

// declarePart compares some semaphores with the state, and sets the semaphores that differ. If another client writes
// them at the same time, the last writer wins.
func declarePart(ctx context.Context, node Node, part []Semaphore) (changed int, refused []Refusal, err error) {
	if _, err := node.Read(ctx, calls.Consistency{}); err != nil {
		return 0, nil, err
	}
	var list []calls.Call
	var names []string
	node.View(func(m *fsm.Machine) {
		for _, s := range part {
			found, exists := m.Semaphore(s.Name)
			if !exists || s.differs(&found) {
				list = append(list, calls.Call{Command: s.put()})
				names = append(names, s.Name)
			}
		}
	})
	if len(list) == 0 {
		return 0, nil, nil
	}
	replies, errs := node.DoMany(ctx, list)
	for i := range list {
		if errs[i] != nil {
			return changed, nil, errs[i]
		}
		if replies[i].Code != fsm.OK {
			refused = append(refused, refusalOf(names[i], &replies[i].Result))
			continue
		}
		changed++
	}
	return changed, refused, nil
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

// put returns the command that creates or changes a declared semaphore. The command leaves the metadata, and the
// settings that the file does not have, as they are.
func (s *Semaphore) put() fsm.PutSemaphore {
	level := s.Level
	return fsm.PutSemaphore{
		Name:    s.Name,
		Permits: fsm.Change[int64]{Given: true, Value: s.Permits},
		Level:   fsm.Change[*int32]{Given: true, Value: &level},

		Settings: s.Settings,
	}
}

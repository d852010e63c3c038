package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// sceneStateCommands are the commands of scripts that read and change the state.
var sceneStateCommands = map[string]func(s *scene, t *testing.T, words []string) []string{
	// hold N [through N]: makes the semaphore db, and so many sessions that hold a permit of it.
	"hold": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		count, err := strconv.Atoi(words[0])
		must(t, err)
		s.holding(n, count)
		return nil
	},
	// leases [N…]: how many leases of db the nodes show, which have to be the same.
	"leases": func(s *scene, t *testing.T, words []string) []string {
		ids, first := []string{}, ""
		count := 0
		for _, n := range s.list(words) {
			_, err := n.Read(t.Context(), calls.Consistency{})
			s.must(err)
			var held []fsm.LeaseView
			n.View(func(m *fsm.Machine) { held = m.Holders("db", 0, 1000) })
			if len(ids) > 0 && fmt.Sprint(held) != first {
				t.Errorf("%s shows %v, %s shows %s", n.id, held, ids[0], first)
			}
			ids, first, count = append(ids, n.id), fmt.Sprint(held), len(held)
		}
		return []string{fmt.Sprintf("%d leases on %s", count, strings.Join(ids, " "))}
	},
	// holders NAME through N: the tokens of a semaphore's leases, in the node's own state.
	"holders": func(s *scene, _ *testing.T, words []string) []string {
		words, n := s.through(words)
		text := n.id + ": " + words[0] + " is held with the tokens"
		n.View(func(m *fsm.Machine) {
			for _, lease := range m.Holders(words[0], 0, 1000) {
				text += fmt.Sprint(" ", lease.Token)
			}
		})
		return []string{text}
	},
	// create NAME PERMITS [through N]: a semaphore.
	"create": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		permits, err := strconv.ParseInt(words[1], 10, 64)
		s.must(err)
		return s.outcomeOf(time.Minute, func() error {
			_, err := n.Do(t.Context(), calls.Call{Command: fsm.CreateSemaphore{Name: words[0], Permits: permits}})
			return err
		})
	},
	// up N [through N]: so many times 1, of the semaphore db.
	"up": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		times, err := strconv.Atoi(words[0])
		s.must(err)
		return s.outcomeOf(time.Minute, func() (err error) {
			for range times {
				if _, err = n.Do(t.Context(), calls.Call{Command: fsm.Up{Name: "db", Count: 1}}); err != nil {
					break
				}
			}
			return err
		})
	},
	// read NAME through N: the permits of a semaphore; stale, as the node's own state has them.
	"read": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		return sceneRead(t, n, words[0], calls.Consistency{})
	},
	"stale": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		return sceneRead(t, n, words[0], calls.Consistency{Stale: true})
	},
}

func sceneRead(t *testing.T, n *testNode, name string, c calls.Consistency) []string {
	if _, err := n.Read(t.Context(), c); err != nil {
		return []string{"refused: " + err.Error()}
	}
	view, ok := stale(n, name)
	if !ok {
		return []string{n.id + ": no " + name}
	}
	return []string{fmt.Sprintf("%s: %s has %d permits", n.id, name, view.Permits)}
}

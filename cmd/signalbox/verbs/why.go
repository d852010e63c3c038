package verbs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// obstacleHolders bounds how many holders of each other semaphore are shown.
const obstacleHolders = 10

func whyVerb() verb {
	var limit int
	return verb{use: "why NAME|SESSION", short: "Show why the requests for a semaphore, or of a session, wait", minimum: 1, maximum: 1, complete: []source{semaphoreNames},
		long: "\n\nFor each request it shows the reason, and the first holders of the semaphores in its way. In JSON it has what \"signalbox show\" has.", flags: limitFlag(&limit, "requests"),
		run: func(c *call) error {
			longest, err := c.limited(limit)
			if err != nil {
				return err
			}
			name, holders := c.arguments[0], obstacleHolders
			switch c.Format {
			case cli.JSON:
				holders = longest
			case cli.Name:
				longest, holders = 0, 0
			}
			s, err := readSemaphore(c, name, holders, longest)
			if err == nil {
				return whyOf(c, s)
			}
			if _, number := strconv.ParseUint(name, 10, 64); !errors.Is(err, signalbox.ErrUnknownSemaphore) || number != nil {
				return err
			}
			session, err := c.operator.GetSession(c, name)
			if errors.Is(err, signalbox.ErrUnknownSession) {
				return refusedFor("\"signalbox ls\" and \"signalbox sessions\" list all.", "%s is neither a semaphore nor a session", name)
			}
			if err != nil {
				return sessionOver(err, name)
			}
			return whySession(c, session, longest)
		}}
}

// whyOf shows why the requests for a semaphore wait.
func whyOf(c *call, s *signalbox.Semaphore) error {
	if c.Format != cli.Table {
		return c.Result(s.Name, s)
	}
	if err := c.Printf("%s", summary(s)); err != nil {
		return err
	}
	if len(s.Waiters) == 0 {
		return c.Printf("No request waits.")
	}
	others := map[string]bool{}
	for _, w := range s.Waiters {
		if err := c.Printf("%d. %s wants %s, for %s: %s%s", w.Position, cli.FormatClientOf(w.Metadata, w.Session), cli.Printable(inGroup(fmt.Sprint(w.Count), w.Group)), cli.ShortDuration(w.WaitingFor), w.Reason, obstacles(w.Obstacles, s.Name, others)); err != nil {
			return err
		}
	}
	if err := more(c, s.WaiterCount, len(s.Waiters), "waiters", allRows); err != nil {
		return err
	}
	err := printHolders(c, s, allHolders(s))
	return errors.Join(err, inTheWay(c, others), freeing(c, s))
}

// obstacles lists the queues, except the queue of name, that keep a request waiting, and adds their semaphores to
// others.
func obstacles(all []signalbox.Obstacle, name string, others map[string]bool) string {
	var parts []string
	for _, o := range all {
		if o.Semaphore != name {
			others[o.Semaphore] = true
			has := fmt.Sprintf("has %d", o.Available)
			if o.Limit != nil && o.Used != nil {
				has = fmt.Sprintf("uses %d of %d", *o.Used, *o.Limit)
			}
			parts = append(parts, fmt.Sprintf("%s needs %d, %s", cli.Printable(inGroup(o.Semaphore, o.Group)), o.Needs, has))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// inTheWay shows the holders of other semaphores in which a request waits.
func inTheWay(c *call, names map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s, err := c.client.Get(c, name, signalbox.Holders(obstacleHolders), signalbox.Waiters(0))
		if errors.Is(err, signalbox.ErrUnknownSemaphore) || errors.Is(err, signalbox.ErrForbidden) {
			continue // just deleted, or not visible to this client
		}
		if err != nil {
			return err
		}
		if err := errors.Join(c.Printf("%s", summary(s)), printHolders(c, s, allHolders(s))); err != nil {
			return err
		}
	}
	return nil
}

func allHolders(s *signalbox.Semaphore) string {
	return fmt.Sprintf("\"signalbox show %s\" shows them", cli.ShellQuote(s.Name))
}

// freeing prints how an operator can free permits of a semaphore.
func freeing(c *call, s *signalbox.Semaphore) error {
	if s.LostCount > 0 {
		err := c.Printf("To bring back what a lost lease held: signalbox free %s TOKEN; \"signalbox lost %[1]s\" lists the tokens.", cli.ShellQuote(s.Name))
		if err != nil || s.Held == 0 {
			return err
		}
	}
	if s.Window > 0 {
		return c.Printf("Permits come back after the window; \"signalbox up\" or \"signalbox resize\" adds permits.")
	}
	if s.Held == 0 {
		return c.Printf("No lease holds it: \"signalbox up\" or \"signalbox resize\" adds permits.")
	}
	session, group := "SESSION", ""
	if i := slices.IndexFunc(s.Holders, func(h signalbox.Holder) bool { return !h.Revoked }); i >= 0 { // a revoked lease is listed until its session ends
		session, group = s.Holders[i].Session, s.Holders[i].Group
	}
	if group != "" {
		group = " --group " + cli.ShellQuote(group)
	}
	return c.Printf("To take the lease of a holder away: signalbox revoke %s %s%s", cli.ShellQuote(s.Name), session, group)
}

// whySession shows why a session's requests wait, up to limit requests.
func whySession(c *call, s *operator.Session, limit int) error {
	if c.Format != cli.Table {
		return c.Result(s.ID, s)
	}
	if err := c.Printf("%s holds: %s; %s left", cli.FormatClientOf(s.Metadata, s.ID), cli.Printable(orNone(firstLeases(s, lineLeases))), cli.ShortDuration(s.ExpiresIn)); err != nil {
		return err
	}
	others := map[string]bool{}
	list := slices.DeleteFunc(slices.Clone(s.WaitList), func(e operator.ListEntry) bool { return e.Position == 0 || e.Deleted })
	for _, e := range list[:min(limit, len(list))] {
		others[e.Semaphore] = true
		if err := c.Printf("Its wait list wants %d of %s, at place %d, for %s", e.Wanted, cli.Printable(inGroup(e.Semaphore, e.Group)), e.Position, cli.ShortDuration(e.WaitingFor)); err != nil {
			return err
		}
	}
	if err := more(c, int64(len(list)), limit, "on its wait list", allRows); err != nil {
		return err
	}
	if len(s.Waiting) == 0 && len(list) == 0 {
		return c.Printf("It waits for no semaphore.")
	}
	for _, w := range s.Waiting[:min(limit, len(s.Waiting))] {
		var wants []string
		members := w.Wants()
		for _, want := range members {
			others[want.Name] = len(members) == 1
			wants = append(wants, fmt.Sprintf("%d of %s", want.Count, cli.Printable(inGroup(want.Name, want.Group))))
		}
		if err := c.Printf("It wants %s, at place %d, for %s: %s%s", strings.Join(wants, " "+map[string]string{"all": "and", "any": "or"}[w.Mode]+" "),
			w.Position, cli.ShortDuration(w.WaitingFor), w.Reason, obstacles(w.Obstacles, "", others)); err != nil {
			return err
		}
	}
	if err := more(c, s.WaitingCount, min(limit, len(s.Waiting)), "requests", allRows); err != nil {
		return err
	}
	maps.DeleteFunc(others, func(_ string, inTheWay bool) bool { return !inTheWay })
	return inTheWay(c, others)
}

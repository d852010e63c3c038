package verbs

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

const (
	// pageSize is the number of list members that one request reads.
	pageSize = 1000
	// tableRows is the number of rows of a table without --limit. The other formats have all members, since programs
	// read them.
	tableRows = 100
	// lineLeases is the number of a session's leases in one line.
	lineLeases = 20
	allRows    = "--limit 0 shows all"
)

// limitFlag adds --limit for a list. listed names its members.
func limitFlag(limit *int, listed string) func(*pflag.FlagSet) {
	return func(flags *pflag.FlagSet) {
		flags.IntVar(limit, "limit", tableRows, "how many "+listed+" to show; 0: all, as -o json does without this flag")
	}
}

// limited returns how many members of a list to show.
func (c *call) limited(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, cli.UsageError(fmt.Errorf("--limit: %d is below 0; 0 shows all", limit))
	case limit == 0, c.Format != cli.Table && !c.flags.Changed("limit"):
		return math.MaxInt, nil
	}
	return limit, nil
}

// readSemaphore reads a semaphore with up to the given numbers of holders and waiters. If they fit into a page, one
// request reads them, so they show the same moment. Longer lists are read page by page.
func readSemaphore(c *call, name string, holders, waiters int) (*signalbox.Semaphore, error) {
	s, err := c.client.Get(c, name, signalbox.Holders(min(holders, pageSize)), signalbox.Waiters(min(waiters, pageSize)))
	if err != nil {
		return nil, err
	}
	size := operator.PageSize(pageSize)
	if s.Holders, err = whole(s.Holders, s.HolderCount, holders, c.operator.ListHolders(c, name, size)); err != nil {
		return nil, err
	}
	s.Waiters, err = whole(s.Waiters, s.WaiterCount, waiters, c.operator.ListWaiters(c, name, size))
	return s, err
}

// whole returns up to limit members: from first, the first page, if it has enough, else from list. all is the length of
// the list.
func whole[T any](first []T, all int64, limit int, list iter.Seq2[*T, error]) ([]T, error) {
	if int64(len(first)) >= all || len(first) >= limit {
		return first, nil
	}
	var found []T
	for member, err := range list {
		if err != nil {
			return nil, err
		}
		if found = append(found, *member); len(found) == limit {
			break
		}
	}
	return found, nil
}

// each returns the members of a list that was read already.
func each[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, member := range list {
			if !yield(member, nil) {
				return
			}
		}
	}
}

// printHolders prints the holders of a semaphore, and how many are not shown. advice says how to see them.
func printHolders(c *call, s *signalbox.Semaphore, advice string) error {
	var rows [][]string
	for _, h := range s.Holders {
		left := cli.ShortDuration(h.ExpiresIn)
		switch {
		case h.Revoked && h.Reason == maxHold:
			left = maxHold
		case h.Revoked:
			left = "revoked"
		case h.Spent:
			left = "spent"
		}
		row := []string{cli.FormatClient(h.Metadata), h.Session, fmt.Sprint(h.Count), fmt.Sprint(h.Token), cli.ShortDuration(h.HeldFor), left}
		rows = append(rows, withSlots(s, withGroup(s, row, groupName(h.Group)), slotRanges(h.Slots)))
	}
	err := c.Rows(withSlots(s, withGroup(s, []string{"HOLDER", "SESSION", "COUNT", "TOKEN", "FOR", "LEFT"}, "GROUP"), "SLOTS"), rows)
	return errors.Join(err, more(c, s.HolderCount, len(s.Holders), "holders", advice))
}

// more prints how many members of a list are not shown.
func more(c *call, all int64, shown int, listed, advice string) error {
	if left := all - int64(shown); left > 0 {
		return c.Printf("… and %d more %s: %s", left, listed, advice)
	}
	return nil
}

// firstLeases lists the first leases of a session on one line, and the number of the others.
func firstLeases(s *operator.Session, limit int) string {
	if len(s.Leases) <= limit {
		return leasesOf(s)
	}
	few := *s
	few.Leases = slices.Clone(s.Leases[:limit])
	return fmt.Sprintf("%s and %d more", leasesOf(&few), len(s.Leases)-limit)
}

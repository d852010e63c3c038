package verbs

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

func lostVerb() verb {
	return verb{use: "lost NAME", short: "List what lost leases held and has not come back", minimum: 1, maximum: 1, complete: []source{semaphoreNames},
		long: "\n\nA lease is lost when its session is not renewed in time, or when it has been held for --max-hold. \"signalbox set NAME\n" +
			"--on-lost quarantine\" keeps its permits away until \"signalbox free\" brings them back, once a person has looked.",
		run: func(c *call) error {
			return cli.PrintList(c.Output, c.client.ListLost(c, c.arguments[0], signalbox.PageSize(pageSize)),
				[]string{"TOKEN", "HOLDER", "SESSION", "GROUP", "COUNT", "SLOTS", "LOST", "BACK"}, lostToken, func(l *signalbox.LostHold) []string {
					back := "when freed"
					if l.BackIn != nil {
						back = "in " + cli.ShortDuration(*l.BackIn)
					}
					return []string{lostToken(l), cli.FormatClient(l.Metadata), l.Session, groupName(l.Group), fmt.Sprint(l.Count), slotRanges(l.Slots),
						cli.ShortDuration(l.LostFor) + " ago", back}
				})
		}}
}

// lostToken returns a lost hold as text.
func lostToken(l *signalbox.LostHold) string { return strconv.FormatUint(l.Token, 10) }

// lostTokens returns the tokens of the lost holds of the semaphore in the first argument.
func lostTokens(c *call, _ string) iter.Seq2[string, error] {
	return words(c.client.ListLost(c, c.argument(0), signalbox.Stale()), lostToken)
}

func freeVerb() verb {
	var reason string
	return verb{use: "free NAME TOKEN", short: "Bring back what a lost lease held", minimum: 2, maximum: 2, complete: []source{semaphoreNames, lostTokens},
		long: "\n\nDo so once the work of its holder has ended: its permits are available at once. \"signalbox lost NAME\" lists the tokens.\n" +
			"It asks first.",
		flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&reason, "reason", "", "shown with the event, and in the audit log")
		},
		asks: func(c *call) (string, error) {
			name, token, err := lostArguments(c)
			if err != nil {
				return "", err
			}
			for l, err := range c.client.ListLost(c, name, signalbox.PageSize(pageSize)) {
				if err != nil {
					return "", err
				}
				if l.Token == token {
					return fmt.Sprintf("Bring back %d of %s, from %s, which lost it. The holder may still be running: the token %d fences it.",
						l.Count, cli.Printable(inGroup(name, l.Group)), cli.FormatClientOf(l.Metadata, l.Session), token), nil
				}
			}
			return "", notLost(name, token)
		},
		run: func(c *call) error {
			name, token, err := lostArguments(c)
			if err != nil {
				return err
			}
			if err := c.client.FreeLost(c, name, token, reason); errors.Is(err, signalbox.ErrNotLost) {
				return notLost(name, token)
			} else if err != nil {
				return err
			}
			return errors.Join(c.Result(c.arguments[1], map[string]any{"semaphore": name, "freed": token}), c.Printf("token %d of %s freed", token, cli.Printable(name)))
		}}
}

func lostArguments(c *call) (name string, token uint64, err error) {
	if token, err = strconv.ParseUint(c.arguments[1], 10, 64); err != nil {
		err = cli.UsageError(fmt.Errorf("%q is no token", c.arguments[1]))
	}
	return c.arguments[0], token, err
}

func notLost(name string, token uint64) error {
	return refusedFor(fmt.Sprintf("\"signalbox lost %s\" lists its lost holds.", cli.ShellQuote(name)),
		"%s has no lost hold of the token %d, or another identity must free it", name, token)
}

func settleVerb() verb {
	var group string
	return verb{use: "settle SESSION NAME N", short: "Say how many permits were really spent in a window", minimum: 3, maximum: 3,
		complete: []source{sessionIDs, semaphoreNames, noWords},
		long: "\n\nA lease of a semaphore with a window is a receipt of what was spent. What comes back changes to N, at once, unless it has come\n" +
			"back already.",
		flags: func(flags *pflag.FlagSet) { groupFlag(&group, flags) },
		run: func(c *call) error {
			id, name := c.arguments[0], c.arguments[1]
			n, err := strconv.ParseInt(c.arguments[2], 10, 64)
			if err != nil {
				return cli.UsageError(fmt.Errorf("%q is no number of permits", c.arguments[2]))
			}
			s, err := c.operator.GetSession(c, id)
			if err != nil {
				return sessionOver(err, id)
			}
			found, err := findLease(c, s, name, group)
			if err != nil {
				return err
			}
			shown := inGroup(name, found.group)
			if !found.spent {
				return refusedFor("\"signalbox release\" gives a lease back.", "%s spent no permits of %s in a window", cli.FormatClientOf(s.Metadata, id), shown)
			}
			settled, err := c.operator.Settle(c, id, name, found.token, n, leaseIn(found.group)...)
			if err != nil {
				return sessionOver(err, id)
			}
			text := fmt.Sprintf("%s: %d spent", cli.Printable(shown), n)
			if !settled {
				text = cli.Printable(shown) + ": what was spent has come back already"
			}
			return errors.Join(c.Result(id, map[string]any{"session": id, "semaphore": name, "group": found.group, "count": n, "settled": settled}),
				c.Printf("%s", text))
		}}
}

// awayOf describes, for people, permits that are neither held nor available and that come back later.
func awayOf(s *signalbox.Semaphore) (texts []string) {
	if s.Returning != 0 {
		text := fmt.Sprintf("%d returning", s.Returning)
		if s.NextReturnIn > 0 {
			text += ", the next in " + cli.ShortDuration(s.NextReturnIn)
		}
		texts = append(texts, text)
	}
	if s.LostCount > 0 {
		texts = append(texts, fmt.Sprintf("lost leases: %d", s.LostCount))
	}
	return texts
}

// withSlots adds a cell for slots if the semaphore has slots.
func withSlots(s *signalbox.Semaphore, row []string, slots string) []string {
	if !s.Slots {
		return row
	}
	return append(row, slots)
}

// slotRanges formats slots for people, for example 0-3,7.
func slotRanges(slots []int) string {
	var parts []string
	for i, j := 0, 0; i < len(slots); i = j {
		for j = i + 1; j < len(slots) && slots[j] == slots[j-1]+1; j++ {
		}
		part := strconv.Itoa(slots[i])
		if j > i+1 {
			part += fmt.Sprintf("-%d", slots[j-1])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

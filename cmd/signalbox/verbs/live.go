package verbs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

func liveVerbs() []verb { return []verb{watchVerb(), eventsVerb(), topVerb()} }

func watchVerb() verb {
	return verb{use: "watch [NAME]", short: "Follow a semaphore, or the events of all, until Ctrl-C", maximum: 1, complete: []source{semaphoreNames}, follow: true,
		long: "\n\nOf changes in quick succession, it shows a semaphore as it is after the last. \"signalbox events\" shows each.",
		run: func(c *call) error {
			if c.argument(0) == "" {
				return follow(c, operator.WithoutRenewals())
			}
			for s, err := range c.client.Watch(c, c.arguments[0], signalbox.Holders(0), signalbox.Waiters(0)) {
				if err == nil {
					err = errors.Join(c.Result(s.Name, s), c.Printf("%s  %s", now(), summary(s)))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}}
}

func now() string { return time.Now().Format(time.TimeOnly) }

func eventsVerb() verb {
	var since, session, group string
	var names, prefixes []string
	var last int
	var renewals bool
	return verb{use: "events", short: "Follow the events, until Ctrl-C", follow: true,
		long: "\n\nEach line has the local time, as far as cluster time tells it. Renewals of sessions are left out without --renewals.\n" +
			"JSON has one event a line, with its id and kind. Every event has an id, the same on every node: --since goes on behind it.",
		flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&since, "since", "", "begin behind this id or index; 0: with the first of all, while the node still has it")
			flags.IntVar(&last, "last", 0, "begin with the last events that pass the other flags: 1 to 1000 of the events that the node has kept")
			flags.StringArrayVar(&names, "name", nil, "of this semaphore or item; may be repeated")
			flags.StringArrayVar(&prefixes, "prefix", nil, "of semaphores and items whose names begin so; may be repeated")
			groupFlag(&group, flags)
			flags.BoolVar(&renewals, "renewals", false, "show renewals of sessions too")
			flags.StringVar(&session, "session-id", "", "of this session")
		},
		run: func(c *call) error {
			var options []operator.EventOption
			if since != "" {
				options = append(options, operator.Since(since))
			}
			if since != "" && last != 0 || last < 0 || last > 1000 {
				return cli.UsageError(errors.New("--last is 1 to 1000, and not given with --since"))
			}
			if last > 0 {
				options = append(options, operator.Last(last))
			}
			if !renewals {
				options = append(options, operator.WithoutRenewals())
			}
			for _, name := range names {
				options = append(options, operator.OfSemaphore(name))
			}
			for _, prefix := range prefixes {
				options = append(options, operator.OfPrefix(prefix))
			}
			if c.flags.Changed("group") {
				options = append(options, operator.OfGroup(group))
			}
			if session != "" {
				options = append(options, operator.OfSession(session))
			}
			return follow(c, options...)
		}}
}

// follow prints events as they come.
func follow(c *call, options ...operator.EventOption) error {
	clock, err := readClock(c)
	if err != nil {
		return err
	}
	clients := map[string]string{}
	if c.Format == cli.Table {
		clients = clientsByID(c)
	}
	for e, err := range c.operator.Events(c, options...) {
		if err == nil {
			if e.Kind == "session-opened" {
				clients[e.Session] = cli.FormatClient(e.Metadata)
			}
			head, rest := fmt.Sprintf("{\"id\":%q,\"event\":%q", e.ID, e.Kind), strings.TrimPrefix(string(e.Data), "{")
			if rest != "}" {
				head += ","
			}
			err = errors.Join(c.Result(e.ID, json.RawMessage(head+rest)), c.Printf("%s  %s  %s", clock.timeOf(e).Format(time.DateTime), e.ID, eventText(e, clients[e.Session])))
			if e.Kind == "session-ended" {
				delete(clients, e.Session)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clock converts cluster time to this machine's clock.
type clock struct {
	at      time.Time
	cluster time.Duration // cluster time at that moment
}

func readClock(c *call) (clock, error) {
	cluster, err := c.readCluster()
	if err != nil {
		return clock{}, err
	}
	return clock{time.Now(), cluster.ClusterTime}, nil
}

// timeOf returns the time of an event on this machine's clock. If the event came after the clock was read, it returns
// the present time.
func (k clock) timeOf(e *operator.Event) time.Time {
	if e.ClusterTime > k.cluster {
		return time.Now()
	}
	return k.at.Add(e.ClusterTime - k.cluster)
}

// eventText describes an event. client is the client of its session, or "".
func eventText(e *operator.Event, client string) string {
	session := "session " + e.Session
	if client != "" {
		session = client + " (" + session + ")"
	}
	parts := []string{fmt.Sprintf("%-15s", e.Kind)}
	add := func(format string, shown bool, value any) {
		if shown {
			parts = append(parts, cli.Printable(fmt.Sprintf(format, value)))
		}
	}
	add("%s", e.Semaphore != "", e.Semaphore)
	add("group %s", e.Group != "" || e.Kind == "group-changed", groupName(e.Group))
	add("item %s", e.Item != "", e.Item)
	add("version %d", e.Version != 0, e.Version)
	add("%s", e.Session != "", session)
	add("count %d", e.Count != 0, e.Count)
	add("token %d", e.Token != 0, e.Token)
	add("place %d", e.Place != 0, e.Place)
	add("permits %d", (e.Kind == "created" || e.Kind == "changed") && !e.NoTotal, e.Permits)
	if e.Limit != nil {
		add("limit %d", true, *e.Limit)
	}
	add("paused: %s", e.Paused != "", e.Paused)
	add("offset %+d", e.Offset != 0, e.Offset)
	add("ttl %s", e.TTL != 0, cli.ShortDuration(e.TTL))
	add("%s", e.Cause != "", e.Cause)
	add("(%s)", e.Reason != "", e.Reason)
	return strings.Join(parts, "  ")
}

func topVerb() verb {
	var every time.Duration
	var rounds, rows int
	return verb{use: "top [PREFIX]", short: "Show the busiest semaphores, again and again, until Ctrl-C", maximum: 1, complete: []source{semaphoreNames}, follow: true,
		long: "\n\nFirst the semaphores with most waiters, then the fullest. It reads the whole list each time, from one node's own state.",
		flags: func(flags *pflag.FlagSet) {
			flags.DurationVar(&every, "every", 2*time.Second, "pause between two screens")
			flags.IntVar(&rounds, "rounds", 0, "end after so many screens; 0: on a terminal go on, else 1")
			flags.IntVar(&rows, "rows", 0, "how many semaphores; 0: as many as fit, else 20")
		},
		run: func(c *call) error {
			if every < 100*time.Millisecond || rounds < 0 || rows < 0 {
				return cli.UsageError(errors.New("--every must be at least 100ms, and --rounds and --rows not below 0"))
			}
			live := cli.IsTerminal(c.W) && c.Format == cli.Table
			if rounds == 0 && !live {
				rounds = 1
			}
			for round := 1; ; round++ {
				if err := top(c, rows, live); err != nil || round == rounds {
					return err
				}
				select {
				case <-c.Done():
					return c.Err()
				case <-time.After(every):
				}
			}
		}}
}

func top(c *call, rows int, live bool) error {
	var all []*signalbox.Semaphore
	var held, waiting int64
	for s, err := range c.client.List(c, c.argument(0), signalbox.PageSize(pageSize), signalbox.Stale()) {
		if err != nil {
			return err
		}
		all, held, waiting = append(all, s), held+s.Held, waiting+s.WaiterCount
	}
	slices.SortStableFunc(all, func(a, b *signalbox.Semaphore) int {
		return cmp.Or(cmp.Compare(b.WaiterCount, a.WaiterCount), cmp.Compare(fill(b), fill(a)), cmp.Compare(b.Held, a.Held))
	})
	if rows == 0 {
		if rows = cli.Height(c.W) - 6; rows < 1 {
			rows = 20
		}
	}
	shown := all[:min(rows, len(all))]
	if c.Format != cli.Table {
		return cli.PrintList(c.Output, each(shown), nil, nameOf, rowOf)
	}
	var table [][]string
	for _, s := range shown {
		table = append(table, append(rowOf(s), bar(s)))
	}
	wipe := ""
	if live {
		wipe = "\x1b[H\x1b[2J"
	}
	cluster, err := c.readCluster()
	if err != nil {
		return err
	}
	return errors.Join(c.Printf("%s%s  semaphores: %d, permits held: %d, requests waiting: %d", wipe, now(), len(all), held, waiting),
		c.Rows([]string{"NAME", "PERMITS", "HELD", "AVAILABLE", "WAITING", "LEVEL", "USE"}, table), warn(c, cluster))
}

// fill returns the share of a semaphore's permits that are not available.
func fill(s *signalbox.Semaphore) float64 {
	total := s.Permits + s.Offset
	if total <= 0 {
		return 0
	}
	return float64(s.Held+s.Returning) / float64(total)
}

func bar(s *signalbox.Semaphore) string {
	const width = 10
	full := min(int(fill(s)*width+0.5), width)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

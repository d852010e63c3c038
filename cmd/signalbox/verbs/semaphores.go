package verbs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/waiting"
)

func semaphoreVerbs() []verb {
	return []verb{lsVerb(), showVerb(), createVerb(), setVerb(), resizeVerb(), rmVerb(), upVerb(), downVerb(), groupsVerb(), lostVerb(), freeVerb()}
}

func lsVerb() verb {
	return verb{use: "ls [PREFIX]", short: "List semaphores", long: "\n\nWith PREFIX, the semaphores whose names begin with it.", maximum: 1, merges: true, complete: []source{semaphoreNames},
		run: func(c *call) error {
			c.Empty = noNames("semaphore", c.argument(0))
			return cli.PrintList(c.Output, c.list(c, c.argument(0), signalbox.PageSize(pageSize)),
				[]string{"NAME", "PERMITS", "HELD", "AVAILABLE", "WAITING", "LEVEL", "SETTINGS"}, nameOf, func(s *signalbox.Semaphore) []string {
					return append(rowOf(s), strings.Join(append(awayOf(s), settingsOf(s)...), ", "))
				})
		}}
}

// noNames returns the text on a terminal if no name begins with the prefix.
func noNames(kind, prefix string) string {
	if prefix == "" {
		return fmt.Sprintf("There is no %s.", kind)
	}
	return fmt.Sprintf("There is no %s whose name begins with %q.", kind, prefix)
}

func nameOf(s *signalbox.Semaphore) string { return s.Name }

func rowOf(s *signalbox.Semaphore) []string {
	level := ""
	if s.Level != nil {
		level = fmt.Sprint(*s.Level)
	}
	total, available := fmt.Sprint(s.Permits), fmt.Sprint(s.Available)
	if s.NoTotal {
		total, available = noSetting, ""
	}
	return []string{s.Name, total, fmt.Sprint(s.Held), available, fmt.Sprint(s.WaiterCount), level}
}

func showVerb() verb {
	var limit int
	return verb{use: "show NAME", short: "Show a semaphore, with its holders and waiters", long: "\n\n\"signalbox why\" shows the reason for each wait.",
		minimum: 1, maximum: 1, complete: []source{semaphoreNames}, flags: limitFlag(&limit, "holders and waiters"),
		run: func(c *call) error {
			longest, err := c.limited(limit)
			if err != nil {
				return err
			}
			if c.Format == cli.Name {
				longest = 0
			}
			s, err := readSemaphore(c, c.arguments[0], longest, longest)
			if err != nil {
				return err
			}
			if c.Format != cli.Table {
				return c.Result(s.Name, s)
			}
			if err := errors.Join(c.Printf("%s", summary(s)), printHolders(c, s, allRows)); err != nil {
				return err
			}
			var rows [][]string
			for _, w := range s.Waiters {
				row := []string{fmt.Sprint(w.Position), cli.FormatClient(w.Metadata), w.Session, fmt.Sprint(w.Count), cli.ShortDuration(w.WaitingFor), w.Reason}
				rows = append(rows, withGroup(s, row, groupName(w.Group)))
			}
			err = c.Rows(withGroup(s, []string{"PLACE", "WAITER", "SESSION", "COUNT", "FOR", "WHY"}, "GROUP"), rows)
			return errors.Join(err, more(c, s.WaiterCount, len(s.Waiters), "waiters", allRows))
		}}
}

// summary describes a semaphore in one line.
func summary(s *signalbox.Semaphore) string {
	text := fmt.Sprintf("%s: %s, %d held, %d available, %d waiting", cli.Printable(s.Name), permitsOf(s), s.Held, s.Available, s.WaiterCount)
	if s.NoTotal {
		text = fmt.Sprintf("%s: %s, %d held, %d waiting", cli.Printable(s.Name), permitsOf(s), s.Held, s.WaiterCount)
	}
	if s.Offset != 0 {
		text += fmt.Sprintf(", %+d by up and down", s.Offset)
	}
	if s.Level != nil {
		text += fmt.Sprintf(", level %d", *s.Level)
	}
	for _, part := range append(awayOf(s), settingsOf(s)...) {
		text += ", " + part
	}
	if len(s.Metadata) > 0 {
		text += "; " + cli.Printable(cli.FormatPairs(s.Metadata))
	}
	return text
}

// permitsOf returns the permits of a semaphore for people.
func permitsOf(s *signalbox.Semaphore) string {
	switch {
	case s.NoTotal:
		return "no limit in all"
	case s.Permits == 1:
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", s.Permits)
}

// withGroup adds a cell for the group if the semaphore has groups.
func withGroup(s *signalbox.Semaphore, row []string, group string) []string {
	if s.Groups == "" {
		return row
	}
	return slices.Insert(row, 2, group)
}

func createVerb() verb {
	var f settingFlags
	var level int32
	var metadata map[string]string
	return verb{use: "create NAME --permits N", short: "Make a semaphore", minimum: 1, maximum: 1, values: settingValues,
		long: "\n\nIt is no failure that it exists already with the same permits and settings.",
		flags: func(flags *pflag.FlagSet) {
			f.add(flags)
			flags.Int32Var(&level, "level", 0, "its level in the lock hierarchy; without it: no level")
			flags.StringToStringVar(&metadata, "metadata", nil, "key=value,…: kept with it, for people")
		},
		run: func(c *call) error {
			name := c.arguments[0]
			if !f.permits.set {
				return cli.UsageError(&cli.Advice{Err: fmt.Errorf("the permits of %q are missing", name),
					Next: fmt.Sprintf("signalbox create %s --permits N; 1 makes a lock, 0 a semaphore for \"up\" and \"down\".", cli.ShellQuote(name))})
			}
			settings, err := f.options(c.flags)
			if err != nil {
				return err
			}
			var options []signalbox.CreateOption
			for _, o := range settings {
				options = append(options, o)
			}
			if c.flags.Changed("level") {
				options = append(options, signalbox.Level(level))
			}
			if len(metadata) > 0 {
				options = append(options, signalbox.Metadata(metadata))
			}
			s, created, err := c.client.Create(c, name, f.permits.n, options...)
			if err != nil {
				return err
			}
			switch {
			case !created && s.Permits != f.permits.n && !s.NoTotal && !f.permits.none:
				return refusedFor(fmt.Sprintf("Change that with \"signalbox resize %s %d\".", cli.ShellQuote(name), f.permits.n),
					"%s exists already, with %s", name, permitsOf(s))
			case !created && !f.match(s, c.flags):
				return refusedFor(fmt.Sprintf("Change that with \"signalbox set %s\".", cli.ShellQuote(name)),
					"%s exists already, with other settings: %s", name, terms(s))
			}
			was := "made"
			if !created {
				was = "existed already"
			}
			return errors.Join(c.Result(s.Name, s), c.Printf("%s %s: %s", cli.Printable(name), was, terms(s)))
		}}
}

func resizeVerb() verb {
	return verb{use: "resize NAME N", short: "Change the number of permits",
		long: "\n\nMore permits are granted to waiters at once. Fewer than are held end no lease: until enough came back, no permit is granted.\n" +
			"Waiting requests for more than N are refused.",
		minimum: 2, maximum: 2, complete: []source{semaphoreNames, noWords},
		run: func(c *call) error {
			n, err := strconv.ParseUint(c.arguments[1], 10, 63) // ParseUint allows no sign: +2 would look like an addition
			if err != nil {
				return cli.UsageError(fmt.Errorf("%q is no number of permits: resize sets how many there are in all", c.arguments[1]))
			}
			was, err := c.client.Get(c, c.arguments[0], signalbox.Holders(0), signalbox.Waiters(0))
			if err != nil {
				return err
			}
			s, _, err := c.client.Put(c, was.Name, signalbox.Permits(int64(n)), signalbox.Epoch(was.Epoch))
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s: %d permits before, %d now", cli.Printable(s.Name), was.Permits, s.Permits)
			if was.NoTotal {
				text = fmt.Sprintf("%s: %s before, %s now", cli.Printable(s.Name), permitsOf(was), permitsOf(s))
			}
			if s.Available < 0 {
				text += fmt.Sprintf("; %d must come back before the next grant", 1-s.Available)
			}
			return errors.Join(c.Result(s.Name, s), c.Printf("%s", text))
		}}
}

func noWords(*call, string) iter.Seq2[string, error] { return func(func(string, error) bool) {} }

func rmVerb() verb {
	return verb{use: "rm NAME", short: "Delete a semaphore",
		long:    "\n\nIts leases are over, though their holders may still be running, and its waiters fail. It asks first.",
		minimum: 1, maximum: 1, complete: []source{semaphoreNames},
		asks: func(c *call) (string, error) {
			s, err := c.client.Get(c, c.arguments[0], signalbox.Holders(0), signalbox.Waiters(0))
			if err != nil {
				return "", err
			}
			c.confirmed = s.Epoch
			return fmt.Sprintf("Delete %s. Its leases are over, though their holders may still be running, and its waiters fail.", summary(s)), nil
		},
		run: func(c *call) error {
			name := c.arguments[0]
			var options []signalbox.CallOption
			if c.confirmed != 0 {
				options = append(options, signalbox.Epoch(c.confirmed))
			}
			if err := c.client.Delete(c, name, options...); err != nil {
				if errors.Is(err, signalbox.ErrPreconditionFailed) {
					return refusedFor(fmt.Sprintf("See it with \"signalbox show %s\".", cli.ShellQuote(name)), "%s was deleted and made again after the question", name)
				}
				return err
			}
			return errors.Join(c.Result(name, map[string]string{"deleted": name}), c.Printf("%s deleted", cli.Printable(name)))
		}}
}

func upVerb() verb {
	var n int64
	return verb{use: "up NAME", short: "Add permits without an owner", minimum: 1, maximum: 1, complete: []source{semaphoreNames},
		flags: func(flags *pflag.FlagSet) { flags.Int64VarP(&n, "count", "n", 1, "how many") },
		run: func(c *call) error {
			if err := checkRequest(n, 0); err != nil {
				return err
			}
			value, err := c.client.Up(c, c.arguments[0], n)
			if err != nil {
				return err
			}
			return errors.Join(c.Result(c.arguments[0], map[string]int64{"value": value}), c.Printf("%d", value))
		}}
}

func downVerb() verb {
	var n int64
	var wait time.Duration
	var partial bool
	var g groupFlags
	return verb{use: "down NAME", short: "Take permits without an owner, which come back by \"up\" alone", minimum: 1, maximum: 1, complete: []source{semaphoreNames},
		long: "\n\nIt prints the number taken.",
		flags: func(flags *pflag.FlagSet) {
			flags.Int64VarP(&n, "count", "n", 1, "how many")
			flags.DurationVar(&wait, "wait", 0, "how long to wait for them")
			flags.BoolVar(&partial, "partial", false, "take fewer as soon as there are any")
			g.add(flags)
		},
		run: func(c *call) error {
			if err := checkRequest(n, wait); err != nil {
				return err
			}
			options := []signalbox.DownOption{signalbox.Group(g.group), signalbox.HeadStart(g.headStart)}
			if partial {
				options = append(options, signalbox.Partial())
			}
			taken, err := within(c, wait, func(ctx context.Context, try bool) (signalbox.Taken, error) {
				if try {
					return c.client.TryDown(ctx, c.arguments[0], n, options...)
				}
				defer waiting.Show(ctx, c.terminal, waiting.For(c.client, c.arguments[0], n, isThisProcess))()
				return c.client.Down(ctx, c.arguments[0], n, options...)
			})
			if err != nil {
				return c.notFree(err, c.arguments[0], n, wait)
			}
			return errors.Join(c.Result(c.arguments[0], taken), c.Printf("%d", taken.Granted))
		}}
}

// within calls do, which waits for permits, for at most wait. A signal that asks to end withdraws the request.
func within[T any](c *call, wait time.Duration, do func(ctx context.Context, try bool) (T, error)) (T, error) {
	if wait <= 0 {
		return do(c, true)
	}
	signaled, stop := cli.UntilHangup(c)
	defer stop()
	ctx, cancel := context.WithTimeout(signaled, wait)
	defer cancel()
	granted, err := do(ctx, false)
	if err == nil || signaled.Err() == nil {
		return granted, err
	}
	interrupted := cli.InterruptedBy(signaled)
	advice := &cli.Advice{Err: fmt.Errorf("%w; the request is withdrawn", interrupted)}
	if !errors.Is(err, signalbox.ErrUnavailable) {
		advice = &cli.Advice{Err: fmt.Errorf("%w; no node has confirmed that the request is withdrawn", interrupted), Next: "It leaves the line when its --wait is over."}
	}
	return granted, &cli.ExitError{Status: cli.StatusOf(interrupted), Err: advice}
}

// notFree adds advice to the error that permits were not free in time.
func (c *call) notFree(err error, name string, n int64, wait time.Duration) error {
	if !errors.Is(err, signalbox.ErrUnavailable) {
		return err
	}
	var refusal *signalbox.Error
	if wait <= 0 && errors.As(err, &refusal) && refusal.Rule == "paused" {
		return &cli.ExitError{Status: cli.StatusNotGranted, Err: &cli.Advice{Err: fmt.Errorf("%s is paused: %s", name, refusal.Reason),
			Next: "--wait 30s waits, in line."}}
	}
	next := fmt.Sprintf("\"signalbox why %s\" shows the reason", cli.ShellQuote(name))
	if wait <= 0 {
		next += "; --wait 30s waits"
	}
	text := fmt.Sprintf("%d of %s %s not free", n, name, map[bool]string{true: "is", false: "are"}[n == 1])
	if wait > 0 {
		text = fmt.Sprintf("%d of %s %s not free within %v%s", n, name, map[bool]string{true: "was", false: "were"}[n == 1], wait, waiting.Pause(c, c.client, name))
	}
	return &cli.ExitError{Status: cli.StatusNotGranted, Err: &cli.Advice{Err: errors.New(strings.TrimSpace(text)), Next: next + "."}}
}

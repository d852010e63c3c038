package verbs

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// groupFlags are the flags of a request for permits in a group.
type groupFlags struct {
	group     string
	headStart time.Duration
}

func (f *groupFlags) add(flags *pflag.FlagSet) {
	groupFlag(&f.group, flags)
	flags.DurationVar(&f.headStart, "head-start", 0, "take the place of a request that came so much earlier, as far as the semaphore allows")
}

// groupFlag adds --group. The flag has no variable, because "signalbox run" sets SIGNALBOX_GROUP for its command.
func groupFlag(group *string, flags *pflag.FlagSet) {
	flags.StringVar(group, "group", "", "the group, of a semaphore with groups")
	cli.WithoutVariable(flags, "group")
}

// groupName returns a group in the form of an argument. It adds "-" if the argument would be empty or begin with "-".
func groupName(group string) string {
	if group == "" || strings.HasPrefix(group, "-") {
		return "-" + group
	}
	return group
}

// groupNames returns the groups of the semaphore in the first argument.
func groupNames(c *call, _ string) iter.Seq2[string, error] {
	return words(c.client.ListGroups(c, c.argument(0), signalbox.Stale()), func(g *signalbox.GroupState) string { return groupName(g.Group) })
}

func groupsVerb() verb {
	var limit numberFlag
	var waiting bool
	return verb{use: "groups NAME [GROUP]", short: "List the groups of a semaphore, or set the limit of one", minimum: 1, maximum: 2,
		complete: []source{semaphoreNames, groupNames},
		long: "\n\nA group is there while a lease or a request names it, or while it has an own limit. The group without a name is -, and a\n" +
			"group whose name begins with - has another - before it.",
		flags: func(flags *pflag.FlagSet) {
			flags.Var(&limit, "limit", "give GROUP this limit, in place of the limit per group; 0: its requests are refused; none: end that")
			cli.WithoutVariable(flags, "limit") // a variable would change a group by accident
			flags.BoolVar(&waiting, "waiting", false, "only groups in which a request waits")
		},
		run: func(c *call) error {
			name, group := c.arguments[0], strings.TrimPrefix(c.argument(1), "-")
			switch {
			case limit.set && len(c.arguments) < 2:
				return cli.UsageError(errors.New("--limit is for one group: signalbox groups NAME GROUP --limit N"))
			case limit.set:
				return setGroupLimit(c, name, group, &limit)
			case len(c.arguments) == 2:
				state, err := c.client.GetGroup(c, name, group)
				if err != nil {
					return err
				}
				return errors.Join(c.Result(groupName(group), state), c.Rows(groupTitles, [][]string{groupRow(state)}))
			}
			var options []signalbox.GroupsOption
			if waiting {
				options = append(options, signalbox.OnlyWaiting())
			}
			return cli.PrintList(c.Output, c.client.ListGroups(c, name, append(options, signalbox.PageSize(pageSize))...), groupTitles,
				func(g *signalbox.GroupState) string { return groupName(g.Group) }, groupRow)
		}}
}

var groupTitles = []string{"GROUP", "USED", "LIMIT", "HELD", "WAITING", "LONGEST", "BEFORE"}

func groupRow(g *signalbox.GroupState) []string {
	limit, longest, before := "", "", ""
	if g.Limit != nil {
		limit = fmt.Sprint(*g.Limit)
	}
	if g.Own {
		limit += " (own)"
	}
	if g.Waiting > 0 {
		longest, before = cli.ShortDuration(g.OldestWait), fmt.Sprint(g.GroupsBefore)
	}
	return []string{groupName(g.Group), fmt.Sprint(g.Used), limit, fmt.Sprint(g.Held), fmt.Sprint(g.Waiting), longest, before}
}

func setGroupLimit(c *call, name, group string, limit *numberFlag) error {
	shown := map[string]any{"semaphore": name, "group": group, "limit": nil}
	text := "no own limit"
	var err error
	if limit.none {
		err = c.client.ClearGroupLimit(c, name, group)
	} else {
		shown["limit"], text = limit.n, fmt.Sprintf("%d at a time", limit.n)
		err = c.client.SetGroupLimit(c, name, group, limit.n)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.Result(groupName(group), shown), c.Printf("%s of %s: %s", cli.Printable(groupName(group)), cli.Printable(name), text))
}

// inGroup returns the name of a semaphore with a group, for people.
func inGroup(name, group string) string {
	if group == "" {
		return name
	}
	return fmt.Sprintf("%s (%s)", name, group)
}

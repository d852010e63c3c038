package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/exit"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/settings"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/target"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/terminal"
)

// verb is one subcommand.
type verb struct {
	use         string // its name, and its arguments as help shows them
	short, long string
	least, most int      // arguments
	complete    []source // of the arguments; the last one is for all further ones
	flags       func(*pflag.FlagSet)
	// asks returns the question to ask before run; nil: the verb does not ask.
	asks   func(*call) (string, error)
	run    func(*call) error
	below  []verb
	follow bool // until Ctrl-C, which is no failure then
}

// call is one use of a verb.
type call struct {
	context.Context
	*terminal.Output
	client    *signalbox.Client
	operator  *operator.Operator // of client
	cluster   signalbox.Config   // of client
	arguments []string
	flags     *pflag.FlagSet
	terminal  io.Writer // for people, if it is one
	asked     uint64    // the epoch of the semaphore, or the version of the item, that the question was about; 0: no question
}

// readCluster reads the cluster from one node. The deadline leaves each address its share of the time, so
// that a node which accepts requests and never replies holds no other up.
func (c *call) readCluster() (*operator.Cluster, error) {
	ctx, cancel := context.WithTimeout(c, c.cluster.GiveUpAfter)
	defer cancel()
	return c.operator.Cluster(ctx)
}

// argument returns an argument; "" if it was not given.
func (c *call) argument(i int) string {
	if i < len(c.arguments) {
		return c.arguments[i]
	}
	return ""
}

// common are the flags that all verbs have.
type common struct {
	target  *target.Flags
	format  string
	timeout time.Duration
	yes     bool
}

// Commands makes the verbs. lookup reads an environment variable.
func Commands(lookup func(string) (string, bool)) (commands []*cobra.Command) {
	for _, verbs := range [][]verb{semaphoreVerbs(), sessionVerbs(), {whyVerb(), itemVerb()}, liveVerbs(), memberVerbs()} {
		for _, v := range verbs {
			commands = append(commands, v.command(lookup))
		}
	}
	return commands
}

// command makes the cobra command of a verb.
func (v verb) command(lookup func(string) (string, bool)) *cobra.Command {
	var own common
	command := &cobra.Command{Use: v.use, Short: v.short, Long: v.short + "." + v.long, SilenceUsage: true,
		Args: target.Arguments(v.least, v.most)}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usage(err) })
	flags := command.Flags()
	flags.SortFlags = false
	if v.flags != nil {
		v.flags(flags)
	}
	flags.StringVarP(&own.format, "output", "o", terminal.Table, "table, json or name")
	if v.asks != nil {
		flags.BoolVarP(&own.yes, "yes", "y", false, "don't ask")
	}
	flags.DurationVar(&own.timeout, "timeout", 5*time.Second, "how long to look for a node that replies")
	own.target = target.Add(flags, lookup)
	command.PersistentPreRunE = func(command *cobra.Command, _ []string) error {
		return exit.Usage(settings.Apply(command.Flags(), lookup))
	}
	command.RunE = func(command *cobra.Command, arguments []string) error {
		return v.perform(command, arguments, &own, lookup)
	}
	command.ValidArgsFunction = v.completion(&own, lookup)
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{terminal.Table, terminal.JSON, terminal.Name}, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	for _, below := range v.below {
		command.AddCommand(below.command(lookup))
	}
	return command
}

// perform makes the client, asks where the verb asks, and runs it.
func (v verb) perform(command *cobra.Command, arguments []string, own *common, lookup func(string) (string, bool)) error {
	output, err := terminal.New(command.OutOrStdout(), own.format, lookup)
	if err != nil {
		return exit.Usage(err)
	}
	c, err := own.call(command.Context(), output, arguments, command.Flags(), command.ErrOrStderr())
	if err != nil {
		return exit.Usage(err)
	}
	defer c.end()
	if v.asks != nil && !own.yes {
		question, err := v.asks(c)
		if err == nil {
			err = terminal.Confirm(c, command.InOrStdin(), command.ErrOrStderr(), question)
		}
		if errors.Is(err, terminal.ErrNoTerminal) {
			return exit.Usage(err)
		}
		if err != nil {
			return c.failed(err, false)
		}
	}
	return c.failed(v.run(c), v.follow)
}

// call makes the client of the flags.
func (own *common) call(ctx context.Context, output *terminal.Output, arguments []string, flags *pflag.FlagSet, terminal io.Writer) (*call, error) {
	cfg, err := own.target.Client()
	if err != nil {
		return nil, err
	}
	if own.timeout <= 0 {
		return nil, errors.New("--timeout must be above 0")
	}
	cfg.GiveUpAfter = own.timeout
	client, err := signalbox.New(cfg)
	if err != nil {
		return nil, err
	}
	return &call{Context: ctx, Output: output, client: client, operator: operator.New(client), cluster: cfg, arguments: arguments, flags: flags, terminal: terminal}, nil
}

// end ends the client, which holds no lease any more.
func (c *call) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), time.Second)
	defer cancel()
	_ = c.client.Close(ctx) // the result is printed already
}

// failed gives an error its exit status, and what to do about it.
func (c *call) failed(err error, follow bool) error {
	var known *exit.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case c.Err() != nil && follow:
		return nil
	case c.Err() != nil:
		return &exit.Error{Status: exit.StatusSignal + 2, Err: errors.New("interrupted")}
	}
	return &exit.Error{Status: exit.StatusOf(err), Err: target.Explain(err)}
}

// refusedFor is the failure of a verb that the cluster did not have to refuse.
func refusedFor(next, format string, arguments ...any) error {
	return &exit.Error{Status: exit.StatusRefused, Err: &target.Advice{Err: fmt.Errorf(format, arguments...), Next: next}}
}

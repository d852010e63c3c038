package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// verb is one subcommand.
type verb struct {
	use         string // name and arguments, as in the help
	short, long string
	minimum     int // least number of arguments
	maximum     int
	complete    []source // complete the arguments; the last source is for all further arguments
	flags       func(*pflag.FlagSet)
	values      map[string][]string // by flag: the values with which a shell completes it
	// asks returns the question to ask before run, or "" for no question. nil: the verb never asks.
	asks   func(*call) (string, error)
	run    func(*call) error
	below  []verb
	follow bool // runs until Ctrl-C, which is then no failure
	merges bool // lists the names of several cells, see call.list
}

type call struct {
	context.Context
	*cli.Output
	client    *signalbox.Client
	list      func(ctx context.Context, prefix string, opts ...signalbox.ListOption) iter.Seq2[*signalbox.Semaphore, error]
	operator  *operator.Operator // uses client
	cluster   signalbox.Config   // the configuration of client
	arguments []string
	flags     *pflag.FlagSet
	terminal  io.Writer // for messages to people, if it is a terminal
	confirmed uint64    // epoch of the semaphore, or version of the item, in the confirmed question; 0: no question
}

// readCluster reads the cluster from one node. Because of the deadline, each address gets a share of the time, so that
// a node that never replies does not use up all of it.
func (c *call) readCluster() (*operator.Cluster, error) {
	ctx, cancel := context.WithTimeout(c, c.cluster.GiveUpAfter)
	defer cancel()
	return c.operator.Cluster(ctx)
}

// argument returns argument i, or "".
func (c *call) argument(i int) string {
	if i < len(c.arguments) {
		return c.arguments[i]
	}
	return ""
}

// common are the flags of all verbs.
type common struct {
	target  *cli.ClusterFlags
	format  string
	timeout time.Duration
	yes     bool
}

// Commands returns the verbs. lookup reads an environment variable, and parsePeers parses --peers.
func Commands(lookup func(string) (string, bool), parsePeers func(string) ([]probe.Peer, error)) []*cobra.Command {
	commands := []*cobra.Command{newCert(), newInspect(), newBackup(lookup), newRestore(lookup), newRecover(parsePeers), newToken()}
	for _, verbs := range [][]verb{semaphoreVerbs(), sessionVerbs(), {whyVerb(), itemVerb()}, liveVerbs(), memberVerbs()} {
		for _, v := range verbs {
			commands = append(commands, v.command(lookup))
		}
	}
	return commands
}

func (v verb) command(lookup func(string) (string, bool)) *cobra.Command {
	var shared common
	command := &cobra.Command{Use: v.use, Short: v.short, Long: v.short + "." + v.long,
		Args: cli.Arguments(v.minimum, v.maximum)}
	flags := command.Flags()
	flags.SortFlags = false
	if v.flags != nil {
		v.flags(flags)
	}
	flags.StringVarP(&shared.format, "output", "o", cli.Table, "table, json or name")
	if v.asks != nil {
		flags.BoolVarP(&shared.yes, "yes", "y", false, "don't ask")
	}
	flags.DurationVar(&shared.timeout, "timeout", 5*time.Second, "how long to look for a node that replies")
	shared.target = cli.AddClusterFlags(flags, lookup)
	command.RunE = func(command *cobra.Command, arguments []string) error {
		return v.perform(command, arguments, &shared, lookup)
	}
	command.ValidArgsFunction = v.completion(&shared, lookup)
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{cli.Table, cli.JSON, cli.Name}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	for name, values := range v.values {
		_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, below := range v.below {
		command.AddCommand(below.command(lookup))
	}
	return command
}

// perform makes the client, asks the verb's question, and runs the verb.
func (v verb) perform(command *cobra.Command, arguments []string, shared *common, lookup func(string) (string, bool)) error {
	output, err := cli.NewOutput(command.OutOrStdout(), shared.format, lookup)
	if err != nil {
		return cli.UsageError(err)
	}
	if err := v.checkSession(arguments); err != nil {
		return cli.UsageError(err)
	}
	if err := v.chooseCell(shared.target, arguments); err != nil {
		return cli.UsageError(err)
	}
	c, err := shared.call(command.Context(), output, arguments, command.Flags(), command.ErrOrStderr())
	if err != nil {
		return cli.UsageError(err)
	}
	defer c.close()
	if v.asks != nil && !shared.yes {
		question, err := v.asks(c)
		if err == nil && question != "" {
			err = cli.Confirm(c, command.InOrStdin(), command.ErrOrStderr(), question)
		}
		if err != nil {
			return c.failed(err, false)
		}
	}
	return c.failed(v.run(c), v.follow)
}

// checkSession checks that the argument SESSION is a number.
func (v verb) checkSession(arguments []string) error {
	i := slices.Index(strings.Fields(v.use)[1:], "SESSION")
	if i < 0 || i >= len(arguments) {
		return nil
	}
	if _, err := strconv.ParseUint(arguments[i], 10, 64); err != nil {
		return fmt.Errorf("%q is no id of a session", arguments[i])
	}
	return nil
}

// chooseCell chooses the cell by the first argument, if this names a semaphore, an item or a session.
func (v verb) chooseCell(target *cli.ClusterFlags, arguments []string) error {
	words := append(strings.Fields(v.use), "")
	first := ""
	if len(arguments) > 0 {
		first = arguments[0]
	}
	switch kind := words[1]; {
	case kind == "NAME", kind == "[NAME]" && first != "":
		return target.AboutName(first)
	case kind == "SESSION":
		return target.AboutSession(first)
	case kind == "NAME|SESSION" && strings.Trim(first, "0123456789") != "":
		return target.AboutName(first)
	case kind == "NAME|SESSION":
		return target.AboutSession(first)
	case v.merges:
		return target.AboutNames(first)
	case kind == "[PREFIX]":
		return target.AboutNamesBelow(first)
	}
	return nil
}

// call makes a call, with the client that the flags describe.
func (shared *common) call(ctx context.Context, output *cli.Output, arguments []string, flags *pflag.FlagSet, terminal io.Writer) (*call, error) {
	cfg, err := shared.target.Client()
	if err != nil {
		return nil, err
	}
	if shared.timeout <= 0 {
		return nil, errors.New("--timeout must be above 0")
	}
	cfg.GiveUpAfter = shared.timeout
	client, err := signalbox.New(cfg)
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, Output: output, client: client, list: client.List, operator: operator.New(client), cluster: cfg, arguments: arguments, flags: flags, terminal: terminal}
	if several := shared.target.Several(); several != nil {
		cfg.Addresses = nil // state: of this copy
		all, err := signalbox.NewCells(cfg, several)
		if err != nil {
			return nil, err
		}
		c.list = all.List // state: before the first use
	}
	return c, nil
}

// close closes the client. It holds no lease.
func (c *call) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), time.Second)
	defer cancel()
	_ = c.client.Close(ctx) // ignore the error: the result is already printed
}

// failed adds the exit status and advice to an error.
func (c *call) failed(err error, follow bool) error {
	var known *cli.ExitError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case c.Err() != nil && follow:
		return nil
	case c.Err() != nil:
		return cli.InterruptedBy(c)
	}
	return failed(err)
}

// refusedFor returns the error of a verb that refuses without asking a node. next is the advice.
func refusedFor(next, format string, arguments ...any) error {
	return &cli.ExitError{Status: cli.StatusRefused, Err: &cli.Advice{Err: fmt.Errorf(format, arguments...), Next: next}}
}

// failed adds the exit status and advice to the error of a call.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &cli.ExitError{Status: cli.StatusOf(err), Err: cli.Explain(err)}
}

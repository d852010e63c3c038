package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/hold"
)

// newRun makes the subcommand that holds permits while another program runs. lookup reads an environment variable.
func newRun(lookup func(string) (string, bool)) *cobra.Command {
	var c hold.Config
	var cluster *cli.ClusterFlags
	command := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command while holding permits of a semaphore",
		Long: "Run a command while holding permits of a semaphore: wait for them, run the command, keep the lease\n" +
			"renewed, and give the permits back when the command ends.\n\n" +
			"The command finds SIGNALBOX_SEMAPHORE, SIGNALBOX_GROUP, SIGNALBOX_SESSION, SIGNALBOX_TOKEN (the fencing token, a\n" +
			"number) and SIGNALBOX_ADDR in its environment; of a semaphore with slots also SIGNALBOX_SLOTS (0,3) and SIGNALBOX_SLOT\n" +
			"(0, the first). If the cluster asks for a token, give it by --token-file or by the variable\n" +
			"SIGNALBOX_API_TOKEN, which the command sees too, so that it can call signalbox itself.\n\n" +
			"The command gets a separate process group, and the terminal if there is one; Ctrl-Z does not\n" +
			"stop it. The signals INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to the group, unless the\n" +
			"caller of run ignores them (on macOS: HUP and INT alone). Processes that the command leaves in the group are ended\n" +
			"before the permits are given back.\n\n" +
			"A renewal that fails is repeated while the lease lives. If the lease can't be renewed, the group gets TERM and,\n" +
			"after --grace, KILL, before the permits could be granted to another client. run then frees the permits, even if the\n" +
			"semaphore keeps away what a lost lease held.\n\n" +
			"A SIGKILL of run itself ends the command on Linux, but not what the command has started; on other\n" +
			"systems it ends neither. These processes may run on after the lease, and only the token protects the\n" +
			"resource that they use.\n\n" +
			"Exit status: the command's own (128 + signal if one ended it); or 2 for wrong flags, 3 if the permits were not\n" +
			"free in time, the line was full or a newer request took the place, 4 if the lease was lost, 5 if the cluster\n" +
			"refused, 6 if no node could be reached, 126 and 127 if the command can't be run or found.",
		RunE: func(command *cobra.Command, arguments []string) error {
			c.Create = command.Flags().Changed("permits")
			return holdFor(command, &c, cluster, arguments)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.Int64VarP(&c.Count, "count", "n", 1, "how many permits to hold")
	flags.StringVar(&c.Group, "group", "", "the group, of a semaphore with groups")
	cli.WithoutVariable(flags, "group") // an outer run sets this variable
	flags.DurationVar(&c.HeadStart, "head-start", 0, "take the place of a request that came so much earlier, as far as the semaphore allows")
	flags.Int64Var(&c.Permits, "permits", 0, "how many permits the semaphore gets if it does not exist yet; an existing semaphore stays as it is")
	flags.DurationVar(&c.Wait, "wait", 5*time.Minute, "how long to wait for the permits; 0: not at all")
	cluster = addHoldFlags(command, &c, "lease", lookup)
	return command
}

// newElect makes the subcommand that leads while another program runs. lookup reads an environment variable.
func newElect(lookup func(string) (string, bool)) *cobra.Command {
	c := hold.Config{Elect: true, Count: 1}
	var cluster *cli.ClusterFlags
	command := &cobra.Command{
		Use:   "elect NAME [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command on the machine, of many, that leads",
		Long: "Run a command while no other process leads by the item NAME: wait for that, run the command, keep the\n" +
			"session renewed, and give the item back when the command ends.\n\n" +
			"The item's value says who leads; \"signalbox item get NAME\" shows it. The command finds SIGNALBOX_ITEM,\n" +
			"SIGNALBOX_SESSION, SIGNALBOX_TOKEN (a fencing token, larger for each leader) and SIGNALBOX_ADDR in its environment.\n\n" +
			"The command is ended, as by \"signalbox run\", before another process could lead, and when an operator deletes the\n" +
			"item. The waiting processes have no order; \"signalbox run\" grants in the order of the requests.\n\n" +
			"The exit statuses are as for \"signalbox run\".",
		RunE: func(command *cobra.Command, arguments []string) error {
			if !command.Flags().Changed("value") {
				if host, err := os.Hostname(); err == nil {
					c.Value = host
				}
			}
			return holdFor(command, &c, cluster, arguments)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&c.Value, "value", "", "the item's value while this process leads; default: the name of the machine")
	flags.DurationVar(&c.Wait, "wait", 5*time.Minute, "how long to wait to lead; above 0")
	cluster = addHoldFlags(command, &c, "session", lookup)
	return command
}

// addHoldFlags adds the flags that run and elect share: the flags of the session and of the cluster. It returns the
// flags of the cluster. held is the help's word for what is renewed: "lease" or "session".
func addHoldFlags(command *cobra.Command, c *hold.Config, held string, lookup func(string) (string, bool)) *cli.ClusterFlags {
	flags := command.Flags()
	flags.DurationVar(&c.TTL, "ttl", 30*time.Second, "how long the "+held+" outlives its last renewal; it is renewed every third of that")
	flags.DurationVar(&c.Grace, "grace", 0, "how long the command has between TERM and KILL; default: a sixth of --ttl, at most 10s")
	flags.BoolVar(&c.Anonymous, "anonymous", false, "don't show other people the host, pid, user and command of the "+held)
	return cli.AddClusterFlags(flags, lookup)
}

// holdFor runs the command after the dashes while this process holds permits or leadership.
func holdFor(command *cobra.Command, c *hold.Config, cluster *cli.ClusterFlags, arguments []string) error {
	if err := splitArguments(c, command.Name(), command.ArgsLenAtDash(), arguments); err != nil {
		return cli.UsageError(err)
	}
	err := cluster.AboutName(c.Name)
	if err == nil {
		c.Cluster, err = cluster.Client()
	}
	if err != nil {
		return cli.UsageError(err)
	}
	c.Variables, c.Terminal = cluster.Environment(), command.ErrOrStderr()
	c.Log = slog.New(slog.NewTextHandler(command.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	signals, stop := hold.Catch(command.Context())
	defer stop()
	c.Signals = signals
	holder, err := hold.New(*c)
	if err != nil {
		return err
	}
	return explained(holder.Run(context.WithoutCancel(command.Context())))
}

// splitArguments reads the name before the dashes, and the command after them.
func splitArguments(c *hold.Config, verb string, dash int, arguments []string) error {
	switch {
	case dash < 0:
		return fmt.Errorf("write the command after --: signalbox %s NAME -- COMMAND", verb)
	case dash == 0 || arguments[0] == "":
		return fmt.Errorf("%s needs a NAME before --", verb)
	case dash > 1:
		return fmt.Errorf("%s takes a NAME before --, and not %q too", verb, arguments[1])
	case len(arguments) == 1:
		return fmt.Errorf("%s needs a COMMAND after --", verb)
	}
	c.Name, c.Command = arguments[0], arguments[1:]
	return nil
}

// explained adds to an error what the user can do next.
func explained(err error) error {
	var failure *cli.ExitError
	if !errors.As(err, &failure) || failure.Err == nil {
		return err
	}
	told := cli.Explain(failure.Err)
	var advice *cli.Advice
	if errors.As(told, &advice) && errors.Is(told, signalbox.ErrUnknownSemaphore) {
		advice.Next = "Give --permits N to make it with N permits."
	}
	return &cli.ExitError{Status: failure.Status, Err: told}
}

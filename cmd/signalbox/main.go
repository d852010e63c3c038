package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/tune"
	"github.com/signalbox/signalbox/cmd/signalbox/verbs"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		tune.Slack() // first, since it may execute the program again
	}
	tune.Heap()
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		cancel(cli.Interrupted((<-signals).(syscall.Signal)))
		<-signals // a second signal: end at once
		os.Exit(1)
	}()
	if err := mistyped(os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "signalbox:", oneLine(err.Error()))
		os.Exit(cli.StatusUsage)
	}
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr))
}

// otherVariables are variables that no flag reads: of run, of the clients' token, of the compose files and of tests.
var otherVariables = []string{"SIGNALBOX_API_TOKEN", "SIGNALBOX_TOKEN", "SIGNALBOX_SEMAPHORE", "SIGNALBOX_GROUP", "SIGNALBOX_SLOT", "SIGNALBOX_ITEM", "SIGNALBOX_SESSION",
	"SIGNALBOX_PORT_1", "SIGNALBOX_PORT_2", "SIGNALBOX_PORT_3", "SIGNALBOX_BIND", "SIGNALBOX_CERT_HOSTS", "SIGNALBOX_IMAGE", "SIGNALBOX_VERSION", "SIGNALBOX_KEEP_TIMER_SLACK",
	"SIGNALBOX_SEED", "SIGNALBOX_HISTORIES", "SIGNALBOX_PICTURES", "SIGNALBOX_STORE_", "SIGNALBOX_TEST_"}

// mistyped returns an error for variables that look like settings but are not.
func mistyped(environment []string) error {
	var flags []string
	var visit func(*cobra.Command)
	visit = func(command *cobra.Command) {
		command.Flags().VisitAll(func(flag *pflag.Flag) { flags = append(flags, flag.Name) })
		for _, below := range command.Commands() {
			visit(below)
		}
	}
	visit(newRoot(os.LookupEnv))
	return cli.Mistyped(environment, flags, otherVariables)
}

// run is the whole program without signals: it returns the exit status. When ctx ends, it stops the program in order.
func run(ctx context.Context, arguments []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	root := newRoot(lookup)
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // after SetOut, since it keeps the output
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args = func(_ *cobra.Command, arguments []string) error { // state: cobra makes this command
			return cli.UsageError(cli.Arguments(0, 0)(completion, arguments))
		}
		completion.RunE = func(*cobra.Command, []string) error { // state: cobra makes this command
			return cli.UsageError(errors.New("completion needs the name of a shell"))
		}
	}
	command, err := root.ExecuteContextC(ctx)
	if err != nil {
		if command == root { // an unknown subcommand, or an unknown flag before the subcommand
			err = cli.UsageError(err)
		}
		message, suggested, _ := strings.Cut(err.Error(), "\n\n") // Cobra appends a suggestion in a separate paragraph
		if text := oneLine(parsing.ReplaceAllString(message, "")); text != "" {
			fmt.Fprintln(stderr, "signalbox:", text)
			if next := oneLine(cmp.Or(suggested, nextStep(command, err))); next != "" {
				fmt.Fprintln(stderr, "  "+next)
			}
		}
		return cli.StatusOf(err)
	}
	return 0
}

// parsing matches the text that Go's number parser adds to its errors.
var parsing = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)

// nextStep returns what the user can do after an error, or "" if that is not known.
func nextStep(command *cobra.Command, err error) string {
	var advice *cli.Advice
	switch {
	case errors.As(err, &advice):
		return advice.Next
	case errors.Is(err, cli.ErrNoTerminal):
		return "Give --yes."
	case cli.StatusOf(err) == cli.StatusUsage:
		return fmt.Sprintf("See %q.", command.CommandPath()+" --help")
	}
	return ""
}

// oneLine joins the lines of a text and removes its control characters, since a server may have sent parts of it.
func oneLine(text string) string { return cli.Printable(strings.Join(strings.Fields(text), " ")) }

// newRoot returns the command line. lookup reads an environment variable.
func newRoot(lookup func(string) (string, bool)) *cobra.Command {
	number, _ := version()
	root := &cobra.Command{
		Use:   "signalbox",
		Short: "A replicated semaphore service over HTTP",
		Long: "A replicated semaphore service over HTTP.\n\n" +
			"Every flag may also be given as an environment variable: " + variable("http-port") + " is --http-port.\n" +
			"A flag on the command line wins; an empty variable counts as not set. --group has no variable, nor have --slots, --max-waiting and --limit of semaphores and groups.",
		Version:       number,
		SilenceErrors: true, // run prints them on one line, and the advice on another
		SilenceUsage:  true,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return cli.UsageError(cli.ApplyVariables(command.Flags(), lookup))
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.UsageError(err) })
	root.AddCommand(newServe(lookup), newConfig(), newProxy(), newDev(), newVersion(), newHealthcheck(lookup))
	for _, command := range root.Commands() {
		command.Args = cli.Arguments(0, 0)
		command.Flags().SortFlags = false
	}
	root.AddCommand(newRun(lookup), newElect(lookup), newMCP(lookup))
	root.AddCommand(verbs.Commands(lookup, parsePeers)...)
	for all := root.Commands(); len(all) > 0; all = append(all[1:], all[0].Commands()...) {
		command := all[0]
		if check := command.Args; check != nil {
			command.Args = func(_ *cobra.Command, arguments []string) error { return cli.UsageError(check(command, arguments)) }
		}
		if check := command.PreRunE; check != nil { // it checks flags, and the files that they name, before the command does anything
			command.PreRunE = func(_ *cobra.Command, arguments []string) error { return cli.UsageError(check(command, arguments)) }
		}
	}
	return root
}

// variable returns the environment variable of a flag, for example SIGNALBOX_NODE_ID of --node-id.
func variable(flag string) string { return cli.Variable(flag) }

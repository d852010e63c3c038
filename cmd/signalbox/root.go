package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newRoot builds the command line. lookup reads an environment variable.
func newRoot(lookup func(string) (string, bool)) *cobra.Command {
	root := &cobra.Command{
		Use:   "signalbox",
		Short: "A replicated semaphore service over HTTP",
		Long: "A replicated semaphore service over HTTP.\n\n" +
			"Every flag may also be given as an environment variable: " + variable("http-port") + " is --http-port.\n" +
			"A flag on the command line wins; an empty variable counts as not set.",
		Version:       version(),
		SilenceErrors: true, // run prints them, in one line
		SilenceUsage:  true,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return fromEnvironment(command.Flags(), lookup)
		},
	}
	root.SetVersionTemplate("signalbox {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(), newDev(), newVersion(), newHealthcheck(lookup))
	for _, command := range root.Commands() {
		command.Args = noArguments
		command.Flags().SortFlags = false
	}
	root.AddCommand(newRun(lookup))
	return root
}

// noArguments refuses words that are no flags: most are a flag without its dashes.
func noArguments(command *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("%s takes no arguments but flags: %q", command.Name(), arguments[0])
	}
	return nil
}

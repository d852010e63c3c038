package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// variable is the environment variable of a flag: SIGNALBOX_NODE_ID of --node-id.
func variable(flag string) string {
	return "SIGNALBOX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets each flag that is not on the command line from its
// variable. An empty variable counts as not set, as in most compose files.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed []error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, set := lookup(variable(flag.Name))
		if flag.Changed || !set || value == "" || flag.Name == "help" || flag.Name == "version" {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", variable(flag.Name), err))
		}
	})
	return errors.Join(failed...)
}

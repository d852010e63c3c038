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

// insteadOf annotates a flag with those that it takes the place of.
const insteadOf = "signalbox-instead-of"

// fromEnvironment sets each flag that is not on the command line from its
// variable. An empty variable counts as not set, as in most compose files. So does
// one of a flag that another one on the command line takes the place of: an image
// may set defaults that don't go with it.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed []error
	replaced := map[string]bool{}
	flags.Visit(func(flag *pflag.Flag) {
		if on := flag.Value.String(); on != "" && on != "false" {
			for _, name := range flag.Annotations[insteadOf] {
				replaced[name] = true
			}
		}
	})
	flags.VisitAll(func(flag *pflag.Flag) {
		value, set := lookup(variable(flag.Name))
		if flag.Changed || replaced[flag.Name] || !set || value == "" || flag.Name == "help" || flag.Name == "version" {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", variable(flag.Name), err))
		}
	})
	return errors.Join(failed...)
}

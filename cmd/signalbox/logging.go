package main

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// logging is what to log, and how.
type logging struct {
	level string
	json  bool
}

func addLogging(flags *pflag.FlagSet, l *logging, level string) {
	flags.StringVar(&l.level, "log-level", level, "trace, debug, info, warn, error or off")
	flags.BoolVar(&l.json, "log-json", false, "log lines of JSON")
}

// logger writes to the command's stderr: stdout is for what was asked for. It notes
// in c which level the log has unless a declared file says another, if one may.
func (l logging) logger(command *cobra.Command, c *config) (hclog.Logger, error) {
	level := hclog.LevelFromString(l.level)
	if level == hclog.NoLevel {
		return nil, fmt.Errorf("--log-level: %q is not trace, debug, info, warn, error or off", l.level)
	}
	if !command.Flags().Changed("log-level") {
		c.ownLevel = level
	}
	return hclog.New(&hclog.LoggerOptions{Name: "signalbox", Level: level, Output: command.ErrOrStderr(), JSONFormat: l.json}), nil
}

// followLevel gives the log, with all that are named within it, the level that a
// declared file says; if it says none, the one it would have without the file. A
// level given by flag or variable stays.
func (c *config) followLevel(text string, log hclog.Logger) {
	if c.ownLevel == hclog.NoLevel {
		return
	}
	level := hclog.LevelFromString(text)
	if level == hclog.NoLevel {
		level = c.ownLevel
	}
	log.SetLevel(level)
}

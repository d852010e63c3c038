package main

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
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

// logger writes to the given stream, in the program's case stderr: stdout is for
// what was asked for.
func (l logging) logger(to io.Writer) (hclog.Logger, error) {
	level := hclog.LevelFromString(l.level)
	if level == hclog.NoLevel {
		return nil, fmt.Errorf("--log-level: %q is not trace, debug, info, warn, error or off", l.level)
	}
	return hclog.New(&hclog.LoggerOptions{Name: "signalbox", Level: level, Output: to, JSONFormat: l.json}), nil
}

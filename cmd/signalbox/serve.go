package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/supervisor"
)

// serveFlags are the flags of serve, and the configuration that they set.
type serveFlags struct {
	config config
	peers  string
	logs   logging
	file   string // path of the file of settings; may be empty
}

// newServe makes the subcommand that runs a node. lookup reads an environment variable.
func newServe(lookup func(string) (string, bool)) *cobra.Command {
	s := serveFlags{config: defaultConfig()}
	var logger hclog.Logger
	command := &cobra.Command{
		Use:   "serve",
		Short: "Run one node of a cluster",
		Long: "Run one node of a cluster, until SIGTERM or SIGINT; a second signal stops it at once.\n\n" +
			"All members are given the same --peers. Without --peers, or with this node alone in it,\n" +
			"the node is a cluster of its single member.\n\n" +
			"Every flag may also be given as an environment variable: " + variable("node-id") + " is --node-id; or in the TOML\n" +
			"file of --config: node-id = \"n1\". The command line wins over a variable, and a variable over the file.",
		PreRunE: func(command *cobra.Command, _ []string) (err error) {
			if err = s.complete(command.Flags()); err == nil {
				logger, err = s.logs.logger(command, &s.config)
			}
			return err
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command.Context(), s.config, logger, supervisor.Of(lookup, logger))
		},
	}
	s.add(command.Flags())
	return command
}

// newConfig makes the subcommand that prints the settings that serve would run with.
func newConfig() *cobra.Command {
	s := serveFlags{config: defaultConfig()}
	command := &cobra.Command{
		Use:   "config",
		Short: "Print each setting of serve, and where it comes from",
		Long: "Print each setting that \"signalbox serve\" would have with the same flags, variables and file, and where it comes\n" +
			"from. The output is a file for --config, with the defaults as comments. A setting that serve would refuse is an error.",
		RunE: func(command *cobra.Command, _ []string) error {
			failed := cli.UsageError(s.complete(command.Flags()))
			return errors.Join(cli.PrintFlags(command.OutOrStdout(), command.Flags(), "config"), failed)
		},
	}
	s.add(command.Flags())
	return command
}

// complete reads the file of settings, derives settings from the list of peers, and checks all settings.
func (s *serveFlags) complete(flags *pflag.FlagSet) error {
	if s.file != "" {
		if err := cli.ApplyFile(flags, s.file, "config"); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	listed, err := parsePeers(s.peers)
	if err != nil {
		return err
	}
	s.config.peers = listed
	if err := completeFromPeers(&s.config, flags); err != nil {
		return err
	}
	return s.config.validate()
}

func (s *serveFlags) add(flags *pflag.FlagSet) {
	c := &s.config
	flags.StringVar(&s.file, "config", "", "TOML file of settings by the names of these flags")
	flags.StringVar(&c.nodeID, "node-id", c.nodeID, "this node's name among its peers")
	flags.StringVar(&c.httpAddress, "http", c.httpAddress, "host:port to serve the API on")
	flags.StringVar(&c.peerAddress, "peer", c.peerAddress, "host:port to bind for peers; default: this node's in --peers")
	flags.StringVar(&s.peers, "peers", "", "all members, as id=host:port,…")
	flags.StringVar(&c.data, "data", "", "folder of the state; made if it doesn't exist")
	flags.BoolVar(&c.ephemeral, "ephemeral", false, "keep the state in memory; one node only")
	_ = flags.SetAnnotation("data", cli.InsteadOf, []string{"ephemeral"}) // fails only for an unknown flag
	_ = flags.SetAnnotation("ephemeral", cli.InsteadOf, []string{"data"})
	flags.BoolVar(&c.journal, "journal", c.journal, "a journal of 16 MiB before the log, for one synced write an append instead of two")
	flags.BoolVar(&c.restored, "restored", false, "the folder was put back from a backup or a copy: tokens go on above every token that it may have forgotten")
	addCertificates(flags, c)
	addAccess(flags, c)
	addHosts(flags, c)
	addLogging(flags, &s.logs, "info")
	flags.StringSliceVar(&c.cors, "cors-allow", nil, "origins whose pages may call this node from a browser; * for all")
	flags.IntVar(&c.multiplier, "raft-multiplier", c.multiplier, "stretches Raft's times (500ms at 1) and the time-outs between nodes, for slow disks and networks; alike on all nodes")
	flags.IntVar(&c.cell, "cell", 0, "the number of this cluster, 1 to 62, where several share the names: its session ids tell the number; alike on all nodes")
	addDialects(flags, c)
	flags.Var(&c.minFree, "min-free", "free space in the folder's file system below which writes are refused")
	addSchedule(flags, &c.backups)
	addLimits(flags, c)
}

// completeFromPeers sets the node's id and address from the list of peers if their flags are not given.
func completeFromPeers(c *config, flags *pflag.FlagSet) error {
	if !flags.Changed("node-id") {
		switch len(c.peers) {
		case 0:
		case 1:
			c.nodeID = c.peers[0].ID
		default:
			return errors.New("--node-id: say which of --peers this node is")
		}
	}
	for _, p := range c.peers {
		if p.ID == c.nodeID && !flags.Changed("peer") {
			c.peerAddress = p.Address
		}
	}
	return nil
}

type logging struct {
	level string
	json  bool
}

func addLogging(flags *pflag.FlagSet, l *logging, level string) {
	flags.StringVar(&l.level, "log-level", level, "trace, debug, info, warn, error or off")
	flags.BoolVar(&l.json, "log-json", false, "log lines of JSON")
}

// logger returns a log that writes to the command's stderr. It sets c.ownLevel if a declared file may change the level.
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

// schedule says when and where scheduled backups are made. Without a folder there are no backups.
type schedule struct {
	folder string
	every  time.Duration
	keep   int
}

func defaultSchedule() schedule { return schedule{every: time.Hour, keep: 24} }

func addSchedule(flags *pflag.FlagSet, s *schedule) {
	flags.StringVar(&s.folder, "backup-dir", "", "folder for scheduled backups, made by whichever node leads")
	flags.DurationVar(&s.every, "backup-every", s.every, "how often a backup is made")
	flags.IntVar(&s.keep, "backup-keep", s.keep, "how many backups are kept")
}

func (s schedule) validate() error {
	if s.every < time.Second {
		return errors.New("--backup-every: it must be 1s at least")
	}
	if s.keep < 1 {
		return errors.New("--backup-keep: it must be 1 at least")
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// The statuses of run beside the command's own, which may be the same: whoever needs
// to know better reads stderr.
const (
	statusUsage       = 2
	statusNotInTime   = 3
	statusLost        = 4
	statusRefused     = 5
	statusUnavailable = 6
	statusCantRun     = 126 // as shells say it
	statusNotFound    = 127
	statusSignal      = 128 // and the signal's number
)

// shortestTTL leaves room for a renewal, a grace and a margin on a busy machine.
const shortestTTL = time.Second

// forwarded are the signals that run hands on to the command.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// newRun makes the subcommand that holds permits while another program runs. lookup
// reads an environment variable.
func newRun(lookup func(string) (string, bool)) *cobra.Command {
	r := runner{begin: startGroup}
	command := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command while holding permits of a semaphore",
		Long: "Run a command while holding permits of a semaphore: wait for them, run the command, keep the lease\n" +
			"renewed, and give the permits back when the command ends.\n\n" +
			"The command finds SIGNALBOX_SEMAPHORE, SIGNALBOX_SESSION and SIGNALBOX_TOKEN (the fencing token) in\n" +
			"its environment. It gets a process group of its own, and the terminal if there is one; Ctrl-Z does not\n" +
			"stop it. The signals INT, TERM, HUP, QUIT, USR1 and USR2 are handed on to the group. Whatever is left\n" +
			"of the group when the command itself has ended is ended too, before the permits are given back.\n\n" +
			"When the lease can't be renewed, for as long as it lives that is no loss. Shortly before it could be\n" +
			"granted to someone else the group is sent TERM and, after --grace, KILL.\n\n" +
			"A SIGKILL of run itself ends the command on Linux, but not what the command has started, and nothing\n" +
			"elsewhere: that may run on after the lease, and only the token protects what it works on.\n\n" +
			"Exit status: the command's own (128 + signal if one ended it), or 2 for wrong flags, 3 if the permits\n" +
			"were not free in time, 4 if the lease was lost, 5 if the cluster refuses, 6 if no node can be reached;\n" +
			"126 and 127 if the command can't be run or found.",
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return usage(fromEnvironment(command.Flags(), lookup))
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			r.log = slog.New(slog.NewTextHandler(command.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			if err := r.complete(command, arguments); err != nil {
				return err
			}
			signals, stop := catch(command.Context())
			defer stop()
			defer stayAwake()()
			r.signals = signals
			return r.run(context.WithoutCancel(command.Context()))
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	flags := command.Flags()
	flags.SortFlags = false
	flags.Int64VarP(&r.count, "count", "n", 1, "how many permits to hold")
	flags.Int64Var(&r.permits, "permits", 0, "make the semaphore with so many permits if there is none; one that exists stays as it is")
	flags.DurationVar(&r.ttl, "ttl", 30*time.Second, "how long the lease outlives its last renewal; it is renewed every third of that")
	flags.DurationVar(&r.wait, "wait", 5*time.Minute, "how long to wait for the permits; 0: not at all")
	flags.DurationVar(&r.grace, "grace", 0, "how long the command has between TERM and KILL; default: a sixth of --ttl, at most 10s")
	flags.StringSliceVar(&r.addresses, "addr", []string{"http://127.0.0.1:8701"}, "the nodes' base URLs; each run tries them in an order drawn at random")
	return command
}

// usage is the error of a command line that can't be meant.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exit{statusUsage, err}
}

// complete checks what can be checked without asking a node.
func (r *runner) complete(command *cobra.Command, arguments []string) error {
	dash := command.ArgsLenAtDash()
	switch {
	case dash < 0:
		return usage(errors.New("write the command after --: signalbox run NAME -- COMMAND"))
	case dash != 1 || arguments[0] == "":
		return usage(fmt.Errorf("run takes one name of a semaphore before --, not %d", dash))
	case len(arguments) == 1:
		return usage(errors.New("there is no command after --"))
	}
	r.semaphore, r.command = arguments[0], arguments[1:]
	r.create = command.Flags().Changed("permits")
	if err := r.checkFlags(); err != nil {
		return usage(err)
	}
	if _, err := exec.LookPath(r.command[0]); errors.Is(err, os.ErrPermission) {
		return &exit{statusCantRun, err}
	} else if err != nil {
		return &exit{statusNotFound, err}
	}
	return nil
}

// checkFlags checks the flags, and works out those that depend on others.
func (r *runner) checkFlags() error {
	r.margin = min(max(r.ttl/30, 100*time.Millisecond), time.Second)
	if r.grace == 0 {
		r.grace = min(r.ttl/6, 10*time.Second)
	}
	switch {
	case r.count < 1:
		return errors.New("--count must be above 0")
	case r.create && r.permits < 1:
		return errors.New("--permits must be above 0")
	case r.ttl < shortestTTL:
		return fmt.Errorf("--ttl must be at least %v", shortestTTL)
	case r.wait < 0:
		return errors.New("--wait must not be below 0")
	case r.grace < 0 || r.grace > r.ttl/2-r.margin:
		return fmt.Errorf("--grace must not be below 0, nor above %v with this --ttl", r.ttl/2-r.margin)
	case len(r.addresses) == 0:
		return errors.New("--addr: give at least one")
	}
	return r.connect()
}

// catch hears of the signals that run hands on, instead of main; the end of ctx
// counts as TERM. A signal that is ignored stays so, as under nohup.
func catch(ctx context.Context) (_ <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Reset(syscall.SIGINT, syscall.SIGTERM) // main would end the program at the second
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	undo := context.AfterFunc(ctx, func() { signals <- syscall.SIGTERM })
	return signals, func() {
		undo()
		signal.Stop(signals)
	}
}

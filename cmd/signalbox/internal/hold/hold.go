//go:build unix

package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// minTTL leaves enough time for a renewal, a grace and a margin on a busy machine.
const minTTL = time.Second

// Holder holds permits, or leads by holding an item, while a command runs.
type Holder struct {
	Config
	margin time.Duration // see guard
	client *signalbox.Client
}

// New checks the configuration, and whether the command exists. It sends no request. Its errors are of type
// *cli.ExitError and name the flags of "signalbox run".
func New(c Config) (*Holder, error) {
	h := &Holder{Config: c, margin: min(max(c.TTL/30, 100*time.Millisecond), time.Second)}
	if h.Grace == 0 {
		h.Grace = min(h.TTL/6, 10*time.Second)
	}
	if err := h.check(); err != nil {
		return nil, cli.UsageError(err)
	}
	var err error
	h.Cluster.Logger, h.Cluster.Anonymous = h.Log, h.Anonymous
	if h.client, err = signalbox.New(h.Cluster); err != nil {
		return nil, cli.UsageError(err)
	}
	if h.begin != nil {
		return h, nil
	}
	if _, err := exec.LookPath(h.Command[0]); errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EISDIR) {
		return nil, &cli.ExitError{Status: cli.StatusCantRun, Err: err}
	} else if err != nil {
		return nil, &cli.ExitError{Status: cli.StatusNotFound, Err: err}
	}
	return h, nil
}

func (h *Holder) check() error {
	switch {
	case h.Count < 1:
		return errors.New("--count must be above 0")
	case h.Create && h.Permits < 1:
		return errors.New("--permits must be above 0")
	case h.TTL < minTTL:
		return fmt.Errorf("--ttl must be at least %v", minTTL)
	case h.Elect && h.Wait == 0:
		return errors.New("--wait must be above 0")
	case h.HeadStart < 0:
		return errors.New("--head-start must not be below 0")
	case h.Wait < 0:
		return errors.New("--wait must not be below 0")
	case h.Grace < 0 || h.Grace > h.TTL/2-h.margin:
		return fmt.Errorf("--grace must not be below 0, nor above %v with this --ttl", h.TTL/2-h.margin)
	}
	return nil
}

// Run acquires the permits or the item, runs the command, and releases them. It returns nil if the command ended with
// status 0, else an *cli.ExitError. The end of ctx ends Run at once; a signal ends the command first.
func (h *Holder) Run(ctx context.Context) error {
	begin := h.begin
	if begin == nil {
		g, stop := newGroup()
		defer stop()
		begin = g.begin
	}
	held, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	started, err := begin(h.Command, held.environment(append(os.Environ(), h.Variables...)))
	if err != nil {
		h.release(ctx, held)
		return &cli.ExitError{Status: cli.StatusCantRun, Err: err}
	}
	g := &guard{held: held, child: started, signals: h.Signals, grace: h.Grace, margin: h.margin}
	lost := g.watch()
	if late := h.release(ctx, held); lost == nil {
		lost = late
	}
	if p, ok := held.(*permits); ok && lost != nil && started.gone() {
		h.freeLost(ctx, p)
	}
	switch status := started.status(); {
	case lost != nil:
		return &cli.ExitError{Status: cli.StatusLost, Err: fmt.Errorf("the %s of %s is %w", held.noun(), h.Name, lost)}
	case status != 0:
		return &cli.ExitError{Status: status}
	}
	return nil
}

// relayed are the signals that are relayed to the command's group.
var relayed = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

// Catch returns the channel for Config.Signals. INT and TERM then no longer end the program; the end of ctx counts as
// TERM. A signal that this program's parent ignored stays ignored, also for the command. Until stop is called, Ctrl-Z
// does not stop this process, which must renew the session.
func Catch(ctx context.Context) (_ <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Reset(syscall.SIGINT, syscall.SIGTERM) // else a second signal would end the program
	ignoreInherited()
	for _, s := range relayed {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	undo := context.AfterFunc(ctx, func() { signals <- syscall.SIGTERM })
	mayStop := stayAwake()
	return signals, func() {
		mayStop()
		undo()
		signal.Stop(signals)
	}
}

// ignoredByCaller are the signals that this program's parent ignored, as far as Go reports it: for HUP and INT only,
// and only before main handles them.
var ignoredByCaller = func() (ignored []syscall.Signal) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			ignored = append(ignored, s)
		}
	}
	return ignored
}()

// ignoreInherited makes this process, and so the command, ignore the signals that this program's parent ignored. For
// example, sh ignores INT and QUIT for background jobs, nohup HUP, and systemd PIPE. Go's runtime has installed its own
// handlers for most of them.
func ignoreInherited() {
	for _, s := range append(ignoredAtStart(), ignoredByCaller...) {
		switch s {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF: // this process or Go's runtime needs them
		default:
			signal.Ignore(s)
		}
	}
}

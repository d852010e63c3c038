package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	signalbox "github.com/signalbox/signalbox/client"
)

// The exit statuses. The command of "signalbox run" may end with the same statuses; messages on stderr then show who
// failed.
const (
	StatusFailed      = 1 // any other reason
	StatusUsage       = 2
	StatusNotGranted  = 3   // the permits were not granted: not available, not in time, or no room in the line
	StatusLost        = 4   // a lease or a session has ended
	StatusRefused     = 5   // the cluster refused the request
	StatusUnreachable = 6   // no node replied, a node failed, or the outcome is not known
	StatusDegraded    = 7   // the cluster works, but a part of it is down
	StatusCantRun     = 126 // as in shells
	StatusNotFound    = 127
	StatusSignal      = 128 // plus the signal's number
)

// ExitError is an error with an exit status. Err is nil if a command has ended with this status, so that there is no
// message to print.
type ExitError struct {
	Status int
	Err    error
}

// Error returns the text of Err, or "".
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return strings.TrimPrefix(e.Err.Error(), "signalbox: ")
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// UsageError returns err with StatusUsage, or nil if err is nil.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{StatusUsage, err}
}

// StatusOf returns the exit status of an error: 0 for nil, the status of an ExitError, the status for an error of the
// Go client, or else StatusFailed.
func StatusOf(err error) int {
	var exitError *ExitError
	var refusal *signalbox.Error
	var interrupted Interrupted
	switch {
	case err == nil:
		return 0
	case errors.As(err, &interrupted):
		return StatusSignal + int(interrupted)
	case errors.As(err, &exitError):
		return exitError.Status
	case errors.Is(err, signalbox.ErrLost):
		return StatusLost
	case errors.Is(err, signalbox.ErrUnavailable), errors.Is(err, signalbox.ErrLineFull), errors.Is(err, signalbox.ErrSuperseded):
		return StatusNotGranted
	case errors.Is(err, signalbox.ErrUnreachable), errors.Is(err, signalbox.ErrOutcomeUnknown):
		return StatusUnreachable
	case errors.Is(err, signalbox.ErrUnknownSession), errors.Is(err, signalbox.ErrExpiredSession), errors.Is(err, signalbox.ErrRevoked), errors.Is(err, signalbox.ErrNotHeld):
		return StatusLost
	case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
		return StatusRefused
	case errors.As(err, &refusal):
		return StatusUnreachable
	}
	return StatusFailed
}

// Interrupted is the error of a command that a signal has ended, and the cause of a ctx that a signal has ended.
type Interrupted syscall.Signal

// Error names the signal.
func (i Interrupted) Error() string { return fmt.Sprintf("interrupted (%v)", syscall.Signal(i)) }

// Is makes the error match context.Canceled too, since a client reports the end of its ctx as context.Canceled.
func (i Interrupted) Is(target error) bool { return target == context.Canceled }

// InterruptedBy returns the signal that has ended a ctx. A ctx that ended for another reason counts as ended by Ctrl-C.
func InterruptedBy(ctx context.Context) Interrupted {
	interrupted := Interrupted(syscall.SIGINT)
	errors.As(context.Cause(ctx), &interrupted)
	return interrupted
}

// UntilHangup returns a ctx that also ends at HUP or QUIT, for a verb that then withdraws its request. (INT and TERM end
// the ctx of main already.) HUP stays ignored if this program's parent ignored it, as nohup does. The caller must call
// stop.
func UntilHangup(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		select {
		case s := <-signals:
			cancel(Interrupted(s.(syscall.Signal)))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

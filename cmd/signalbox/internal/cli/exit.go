package cli

import (
	"errors"
	"net/http"
	"strings"

	signalbox "github.com/signalbox/signalbox/client"
)

// The exit statuses. A command that "signalbox run" runs may end with the same ones: stderr then shows the
// difference.
const (
	StatusFailed      = 1 // for a reason without a status
	StatusUsage       = 2
	StatusNotInTime   = 3
	StatusLost        = 4
	StatusRefused     = 5
	StatusUnavailable = 6
	StatusDegraded    = 7   // the cluster works, and a part of it does not
	StatusCantRun     = 126 // as in shells
	StatusNotFound    = 127
	StatusSignal      = 128 // and the signal's number
)

// ExitError is an error with an exit status. Err is nil if the status of an ended command is all there is to report.
type ExitError struct {
	Status int
	Err    error
}

// Error returns the reason, and "" without one.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return strings.TrimPrefix(e.Err.Error(), "signalbox: ")
}

// Unwrap returns the reason.
func (e *ExitError) Unwrap() error { return e.Err }

// UsageError gives an error of the command line its exit status; nil stays nil.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{StatusUsage, err}
}

// StatusOf returns the exit status of an error: 0 for nil, the status of an ExitError, or the status for a
// failure of the Go client. It is StatusFailed for other errors.
func StatusOf(err error) int {
	var exitError *ExitError
	var refusal *signalbox.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exitError):
		return exitError.Status
	case errors.Is(err, signalbox.ErrLost):
		return StatusLost
	case errors.Is(err, signalbox.ErrUnavailable), errors.Is(err, signalbox.ErrLineFull), errors.Is(err, signalbox.ErrSuperseded):
		return StatusNotInTime
	case errors.Is(err, signalbox.ErrUnreachable), errors.Is(err, signalbox.ErrOutcomeUnknown):
		return StatusUnavailable
	case errors.Is(err, signalbox.ErrUnknownSession), errors.Is(err, signalbox.ErrExpiredSession), errors.Is(err, signalbox.ErrRevoked), errors.Is(err, signalbox.ErrNotHeld):
		return StatusLost
	case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
		return StatusRefused
	case errors.As(err, &refusal):
		return StatusUnavailable
	}
	return StatusFailed
}

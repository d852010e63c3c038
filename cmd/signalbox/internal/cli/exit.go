package cli

import (
	"errors"
	"net/http"
	"strings"

	signalbox "github.com/signalbox/signalbox/client"
)

// The exit statuses. The command of "signalbox run" may end with the same statuses; messages on stderr then show who
// failed.
const (
	StatusFailed      = 1 // any other reason
	StatusUsage       = 2
	StatusNotInTime   = 3
	StatusLost        = 4
	StatusRefused     = 5
	StatusUnavailable = 6
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

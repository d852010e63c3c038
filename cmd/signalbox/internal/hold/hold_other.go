//go:build !unix

package hold

import (
	"context"
	"errors"
	"os"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

type child any

// Holder does not exist on this system: New always fails.
type Holder struct{}

// New fails: without process groups, processes that the command has started could outlive the lease.
func New(Config) (*Holder, error) {
	return nil, &cli.ExitError{Status: cli.StatusCantRun, Err: errors.New("run and elect work on Linux, macOS and BSD alone: " +
		"here what the command has started could not be ended before another client is granted the same; use the Go or the Python client")}
}

// Run is never called.
func (h *Holder) Run(context.Context) error { return nil }

// Catch returns no channel: New fails anyway.
func Catch(context.Context) (_ <-chan os.Signal, stop func()) { return nil, func() {} }

//go:build !unix

package hold

import (
	"context"
	"errors"
	"os"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

type child any

// Holder can't be made on this system.
type Holder struct{}

// New refuses: without process groups what a command has started could outlive the lease.
func New(Config) (*Holder, error) {
	return nil, &cli.ExitError{Status: cli.StatusCantRun, Err: errors.New("run and elect work on Linux, macOS and BSD alone: " +
		"here what the command has started could not be ended before another client is granted the same; use the Go or the Python client")}
}

// Run is never called, since New makes no Holder.
func (h *Holder) Run(context.Context) error { return nil }

// Catch catches no signal.
func Catch(context.Context) (_ <-chan os.Signal, stop func()) { return nil, func() {} }

package cli

import (
	"errors"
	"fmt"
	"testing"

	signalbox "github.com/signalbox/signalbox/client"
)

// TestStatusOf: if a lease or session was lost, that decides the exit status, whatever the cause of the loss. The status
// of an ExitError stays.
func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{signalbox.ErrLost, StatusLost},
		{fmt.Errorf("%w: %w: %w", signalbox.ErrLost, signalbox.ErrNotRenewed, signalbox.ErrUnreachable), StatusLost},
		{signalbox.ErrExpiredSession, StatusLost},
		{signalbox.ErrUnavailable, StatusNotGranted},
		{&signalbox.Error{Status: 409, Code: "line-full"}, StatusNotGranted},
		{&signalbox.Error{Status: 409, Code: "superseded"}, StatusNotGranted},
		{&signalbox.Error{Status: 409, Code: "no-total"}, StatusRefused},
		{signalbox.ErrUnreachable, StatusUnreachable},
		{&signalbox.Error{Status: 409, Code: "never"}, StatusRefused},
		{&signalbox.Error{Status: 503, Code: "draining"}, StatusUnreachable},
		{&ExitError{StatusNotFound, signalbox.ErrLost}, StatusNotFound},
		{errors.New("no room on the disk"), StatusFailed},
	} {
		if got := StatusOf(fmt.Errorf("acquire db: %w", c.err)); got != c.want {
			t.Errorf("%v: status %d, not %d", c.err, got, c.want)
		}
	}
	if got := StatusOf(nil); got != 0 {
		t.Errorf("no error: status %d", got)
	}
}

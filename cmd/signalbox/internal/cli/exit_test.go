package cli

import (
	"errors"
	"fmt"
	"testing"

	signalbox "github.com/signalbox/signalbox/client"
)

// TestStatusOf: a loss decides on the exit status, whatever its cause; a status that an error
// already has stays.
func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{signalbox.ErrLost, StatusLost},
		{fmt.Errorf("%w: %w: %w", signalbox.ErrLost, signalbox.ErrNotRenewed, signalbox.ErrUnreachable), StatusLost},
		{signalbox.ErrExpiredSession, StatusLost},
		{signalbox.ErrUnavailable, StatusNotInTime},
		{&signalbox.Error{Status: 409, Code: "line-full"}, StatusNotInTime},
		{&signalbox.Error{Status: 409, Code: "superseded"}, StatusNotInTime},
		{&signalbox.Error{Status: 409, Code: "no-total"}, StatusRefused},
		{signalbox.ErrUnreachable, StatusUnavailable},
		{&signalbox.Error{Status: 409, Code: "never"}, StatusRefused},
		{&signalbox.Error{Status: 503, Code: "draining"}, StatusUnavailable},
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

package exchange_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestEveryNodeErrorOnARoute(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  bool
	}{
		{outcome.ErrNoLeader, 503, "no-leader", true}, {outcome.ErrNotApplied, 503, "not-applied", true},
		{outcome.ErrBehind, 503, "behind", true},
		{outcome.ErrDraining, 503, "draining", true}, {outcome.ErrStorageFull, 503, "storage-full", true},
		{outcome.ErrSplitState, 503, "states-differ", true},
		{outcome.ErrOverloaded, 503, "overloaded", true}, {outcome.ErrOutcomeUnknown, 504, "outcome-unknown", false},
		{errors.New("secret of the inside"), 500, "internal", false},
	} {
		a := apitest.New(t)
		a.Node.Fail = c.err
		got := a.Do("POST /v1/semaphores/db/leases", "").RefusedWith(c.status, c.code)
		if (got.Header.Get("Retry-After") != "") != c.retry {
			t.Errorf("%v: Retry-After %q", c.err, got.Header.Get("Retry-After"))
		}
		if strings.Contains(got.Text, "secret") {
			t.Errorf("an inner error leaks: %s", got.Text)
		}
	}
}

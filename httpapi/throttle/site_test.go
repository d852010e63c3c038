package throttle

import (
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// speaks serves the dialect with these options.
func speaks(options Config) func(*apitest.Config) {
	return func(cfg *apitest.Config) {
		cfg.Dialects["throttle"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return New(x, options) }
	}
}

// exactly serves the dialect, and leaves each ttl as it is given.
func exactly(cfg *apitest.Config) { speaks(Config{})(cfg) }

// inEachThrottle runs a test in each place, see inEachPlace.
func inEachThrottle(t *testing.T, test func(s *apitest.Site), change ...func(*apitest.Config)) {
	apitest.InEachPlace(t, test, append([]func(*apitest.Config){exactly}, change...)...)
}

func TestThrottleScripts(t *testing.T) { apitest.RunScripts(t, "testdata", exactly) }

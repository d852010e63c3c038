package nodered

import (
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// asNodeREDWith serves the dialect with these options.
func asNodeREDWith(options Config) func(*apitest.Config) {
	return func(cfg *apitest.Config) {
		cfg.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return New(x, options), nil }
	}
}

// asNodeRED serves the dialect without callbacks.
func asNodeRED(cfg *apitest.Config) { asNodeREDWith(Config{})(cfg) }

// inEachNodeRED runs a test in each place, see inEachPlace.
func inEachNodeRED(t *testing.T, test func(s *apitest.Site), change ...func(*apitest.Config)) {
	apitest.InEachPlace(t, test, append([]func(*apitest.Config){asNodeRED}, change...)...)
}

// onNodeRED is the dialect over a machine, for tests without virtual time.
func onNodeRED(t *testing.T, change ...func(*apitest.Config)) (*apitest.Site, *apitest.Node) {
	t.Helper()
	return apitest.OnAPI(t, append([]func(*apitest.Config){asNodeRED}, change...)...)
}

func TestNodeREDScripts(t *testing.T) { apitest.RunScripts(t, "testdata", asNodeRED) }

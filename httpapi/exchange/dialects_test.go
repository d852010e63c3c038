package exchange_test

import (
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/httpapi/throttle"
	"github.com/signalbox/signalbox/test/apitest"
)

// withThrottle and withNodeRED serve the dialects.
func withThrottle(cfg *apitest.Config) {
	cfg.Dialects["throttle"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return throttle.New(x, throttle.Config{}) }
}

func withNodeRED(cfg *apitest.Config) {
	cfg.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return nodered.New(x, nodered.Config{}), nil }
}

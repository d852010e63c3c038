package httpapi_test

import (
	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/fleetlock"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/httpapi/terraform"
	"github.com/signalbox/signalbox/httpapi/throttle"
	"github.com/signalbox/signalbox/test/apitest"
)

// These serve a dialect each.
func withThrottle(cfg *apitest.Config) {
	cfg.Dialects["throttle"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return throttle.New(x, throttle.Config{}) }
}

func withNodeRED(cfg *apitest.Config) {
	cfg.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return nodered.New(x, nodered.Config{}), nil }
}

func withConsul(cfg *apitest.Config) {
	cfg.Dialects["consul"] = func(x *exchange.Exchange) (exchange.Dialect, error) {
		return consul.New(x, consul.Config{LingerPercent: 100, Version: "1.2.3"})
	}
}

func withFleetLock(cfg *apitest.Config) {
	cfg.Dialects["fleetlock"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return fleetlock.New(x), nil }
}

func withTerraform(cfg *apitest.Config) {
	cfg.Dialects["terraform"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return terraform.New(x), nil }
}

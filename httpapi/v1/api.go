package v1

import (
	_ "embed"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/events"
	"github.com/signalbox/signalbox/httpapi/v1/members"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
	"github.com/signalbox/signalbox/httpapi/v1/snapshot"
)

// Config is the configuration of the native API. Zero members get their defaults.
type Config struct {
	BatchBodyBytes int64 // bounds the body of a batch; default 1 MiB
	BatchSize      int   // bounds the operations in one batch; default 1,000
	BackupBytes    int64 // bounds a backup to restore; default 4 GiB
}

// API is the native API. It is safe for concurrent use.
type API struct {
	x       *exchange.Exchange
	cfg     Config
	reads   *reads.API
	events  *events.API
	members *members.API
	backups *snapshot.API
}

// WithDefaults returns the configuration with the defaults of its zero members.
func (cfg Config) WithDefaults() Config {
	exchange.SetDefault(&cfg.BatchBodyBytes, 1<<20)
	exchange.SetDefault(&cfg.BatchSize, 1000)
	exchange.SetDefault(&cfg.BackupBytes, 4<<30)
	return cfg
}

// New returns the native API over x.
func New(x *exchange.Exchange, cfg Config) *API {
	cfg = cfg.WithDefaults()
	return &API{x: x, cfg: cfg, reads: reads.New(x), events: events.New(x), members: members.New(x),
		backups: snapshot.New(x, cfg.BackupBytes)}
}

// EndStreams ends the streams of events when the server shuts down. It does not block.
func (api *API) EndStreams() { api.events.EndStreams() }

// Collectors returns the metrics of the native API.
func (api *API) Collectors() []prometheus.Collector {
	return append(api.events.Collectors(), api.reads.Collectors()...)
}

// Routes returns the routes. In a path, :name is a name, :group a group, :id or :session a session, and :member a
// member.
func (api *API) Routes() []exchange.Route {
	routes := []exchange.Route{
		exchange.On("PUT", "/v1/semaphores/:name", api.perform(&opPut)),
		exchange.On("PATCH", "/v1/semaphores/:name", api.perform(&opPatch)),
		exchange.On("POST", "/v1/semaphores", api.perform(&opCreate)),
		exchange.On("DELETE", "/v1/semaphores/:name", api.perform(&opDelete)),
		exchange.On("PUT", "/v1/semaphores/:name/value", api.perform(&opSet)),
		exchange.On("POST", "/v1/semaphores/:name/up", api.perform(&opUp)),
		exchange.On("POST", "/v1/semaphores/:name/down", api.perform(&opDown)),
		exchange.On("POST", "/v1/semaphores/:name/leases", api.perform(&opAcquireOnce)),
		exchange.On("DELETE", "/v1/semaphores/:name/holders/:session", api.perform(&opRevoke)),
		exchange.On("PUT", "/v1/semaphores/:name/groups/:group", api.perform(&opGroupPut)),
		exchange.On("DELETE", "/v1/semaphores/:name/lost/:token", api.perform(&opFreeLost)),

		exchange.On("POST", "/v1/sessions", api.perform(&opOpen)),
		exchange.On("PUT", "/v1/sessions/:id", api.renewSession),
		exchange.On("DELETE", "/v1/sessions/:id", api.perform(&opEnd)),
		exchange.On("POST", "/v1/sessions/:id/revoke", api.perform(&opRevokeSession)),
		exchange.On("PUT", "/v1/sessions/:id/leases/:name", api.perform(&opAcquire)),
		exchange.On("PATCH", "/v1/sessions/:id/leases/:name", api.perform(&opResize)),
		exchange.On("DELETE", "/v1/sessions/:id/leases/:name", api.perform(&opRelease)),
		exchange.On("POST", "/v1/sessions/:id/acquire", api.perform(&opAcquireMany)),
		exchange.On("POST", "/v1/sessions/:id/restore", api.perform(&opRestore)),
		exchange.On("PUT", "/v1/sessions/:id/waitlist/:name", api.perform(&opListAdd)),
		exchange.On("DELETE", "/v1/sessions/:id/waitlist/:name", api.perform(&opListRemove)),
		exchange.On("POST", "/v1/sessions/:id/waitlist/wait", api.perform(&opListDeliver)),

		exchange.On("PUT", "/v1/items/:name", api.perform(&opItem)),
		exchange.On("DELETE", "/v1/items/:name", api.perform(&opItemDelete)),

		exchange.On("PUT", "/v1/cluster/tokens", api.perform(&opRaiseTokens)),
		exchange.On("POST", "/v1/batch", api.batch),
		exchange.On("GET", "/v1/openapi.json", api.getOpenAPI),
	}
	routes = slices.Concat(routes, api.reads.Routes(), api.events.Routes())
	for _, r := range slices.Concat(api.members.Routes(), api.backups.Routes()) { // these routes change the cluster without commands
		routes = append(routes, exchange.On(r.Method, r.Path, refuseKeys(r.Handler)))
	}
	for i, r := range routes {
		routes[i] = exchange.On(r.Method, r.Path, refuseConditions(r.Handler))
	}
	return routes
}

// openAPI describes the routes, as OpenAPI 3.1. A test generates it from the tables of this package.
//
//go:embed openapi.json
var openAPI []byte

func (api *API) getOpenAPI(c echo.Context) error {
	if _, err := exchange.ParseQuery(c); err != nil {
		return err
	}
	api.x.Replies.SetHighestIndex(c)
	return api.x.Replies.Send(c, http.StatusOK, "application/json", openAPI)
}

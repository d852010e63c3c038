package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// route is one row of the API; docs/api.md has the same ones.
type route struct {
	method, path string
	handler      echo.HandlerFunc
}

// nativeRoutes is the API. A path segment that is a name is :name, a session
// :id or :session, a member :member.
func (h *Handler) nativeRoutes() []route {
	return []route{
		{"PUT", "/v1/semaphores/:name", h.perform(&opPut)},
		{"POST", "/v1/semaphores", h.perform(&opCreate)},
		{"GET", "/v1/semaphores", h.listSemaphores},
		{"GET", "/v1/semaphores/:name", h.getSemaphore},
		{"DELETE", "/v1/semaphores/:name", h.perform(&opDelete)},
		{"PUT", "/v1/semaphores/:name/value", h.perform(&opSet)},
		{"POST", "/v1/semaphores/:name/up", h.perform(&opUp)},
		{"POST", "/v1/semaphores/:name/down", h.perform(&opDown)},
		{"POST", "/v1/semaphores/:name/leases", h.perform(&opAcquireOnce)},
		{"DELETE", "/v1/semaphores/:name/holders/:session", h.perform(&opRevoke)},

		{"POST", "/v1/sessions", h.perform(&opOpen)},
		{"GET", "/v1/sessions", h.listSessions},
		{"GET", "/v1/sessions/:id", h.getSession},
		{"PUT", "/v1/sessions/:id", h.renewSession},
		{"DELETE", "/v1/sessions/:id", h.perform(&opEnd)},
		{"POST", "/v1/sessions/:id/revoke", h.perform(&opRevokeSession)},
		{"PUT", "/v1/sessions/:id/leases/:name", h.perform(&opAcquire)},
		{"GET", "/v1/sessions/:id/leases/:name", h.getLease},
		{"PATCH", "/v1/sessions/:id/leases/:name", h.perform(&opResize)},
		{"DELETE", "/v1/sessions/:id/leases/:name", h.perform(&opRelease)},
		{"POST", "/v1/sessions/:id/acquire", h.perform(&opAcquireMany)},
		{"POST", "/v1/sessions/:id/restore", h.perform(&opRestore)},
		{"PUT", "/v1/sessions/:id/waitlist/:name", h.perform(&opListAdd)},
		{"DELETE", "/v1/sessions/:id/waitlist/:name", h.perform(&opListRemove)},
		{"POST", "/v1/sessions/:id/waitlist/wait", h.perform(&opListDeliver)},

		{"POST", "/v1/batch", h.batch},
		{"GET", "/v1/events", h.getEvents},

		{"GET", "/v1/cluster", h.getCluster},
		{"PUT", "/v1/cluster/members/:member", h.putMember},
		{"DELETE", "/v1/cluster/members/:member", h.deleteMember},
		{"POST", "/v1/cluster/leader", h.postLeader},
		{"PUT", "/v1/cluster/level", h.putLevel},

		{"GET", "/livez", h.livez},
		{"GET", "/readyz", h.readyz},
		{"GET", "/health", h.health},
		{"GET", "/version", h.version},
		{"GET", "/metrics", h.metrics.serve},
	}
}

// addNativeRoutes registers the API. HEAD is answered as GET, and registered, so
// that Allow names it.
func (h *Handler) addNativeRoutes() {
	for _, r := range h.nativeRoutes() {
		handler := r.handler
		if strings.HasPrefix(r.path, "/v1/") {
			handler = refuseConditions(handler)
		}
		h.echo.Add(r.method, r.path, handler)
		if r.method == http.MethodGet {
			h.echo.Add(http.MethodHead, r.path, handler)
		}
	}
}

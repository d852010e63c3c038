package reads

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// API serves the routes that read the state. It is safe for concurrent use.
type API struct {
	x       *exchange.Exchange
	waiting prometheus.Gauge // reads
}

// New returns the routes over x.
func New(x *exchange.Exchange) *API {
	return &API{x, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "signalbox_blocking_queries_open",
		Help: "Blocking queries that wait on this node for a change.",
	})}
}

// Collectors returns the metrics of the reads that wait.
func (api *API) Collectors() []prometheus.Collector { return []prometheus.Collector{api.waiting} }

// Routes returns the routes.
func (api *API) Routes() []exchange.Route {
	return []exchange.Route{
		get("/v1/semaphores", api.listSemaphores, "prefix", "limit", "cursor"),
		get("/v1/semaphores/:name", api.getSemaphore, "epoch", "holders", "waiters", "index", "wait"),
		get("/v1/semaphores/:name/holders", api.listHolders, "epoch", "group", "limit", "cursor"),
		get("/v1/semaphores/:name/waiters", api.listWaiters, "epoch", "group", "limit", "cursor"),
		get("/v1/semaphores/:name/groups", api.listGroups, "epoch", "waiting", "limit", "cursor"),
		get("/v1/semaphores/:name/groups/:group", api.getGroup, "epoch"),
		get("/v1/semaphores/:name/lost", api.listLost, "epoch", "limit", "cursor"),
		get("/v1/items", api.listItems, "prefix", "limit", "cursor", "index", "wait"),
		get("/v1/items/:name", api.getItem, "index", "wait"),
		get("/v1/sessions", api.listSessions, "limit", "cursor"),
		get("/v1/sessions/:id", api.getSession),
		get("/v1/sessions/:id/leases", api.listLeases, "limit", "cursor"),
		get("/v1/sessions/:id/leases/:name", api.getLease, "epoch", "group"),
	}
}

// get returns the route of a read. Its query may have the parameters of every read, and params.
func get(path string, handler func(c echo.Context, q exchange.Query) error, params ...string) exchange.Route {
	return exchange.On("GET", path, func(c echo.Context) error {
		q, err := exchange.ParseQuery(c, exchange.ReadParams(params...)...)
		if err != nil {
			return err
		}
		return handler(c, q)
	})
}

func (api *API) listSemaphores(c echo.Context, q exchange.Query) error {
	prefix, limit, after, err := readNamePage(q)
	if err != nil {
		return err
	}
	narrowed := api.x.Rights.Caller(c).Narrow(prefix)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		var found []fsm.SemaphoreView
		for _, allowed := range narrowed {
			found = append(found, m.Semaphores(allowed, after, limit+1-len(found))...)
		}
		body := SemaphoresBody{Semaphores: []SemaphoreBody{}}
		if len(found) > limit {
			found = found[:limit]
			next := nameCursor(found[limit-1].Name)
			body.Next = &next
		}
		for i := range found {
			body.Semaphores = append(body.Semaphores, NewSemaphoreBody(&found[i], nowMS))
		}
		return body, nil
	})
}

// sendView sends the body that build returns for a state as recent as the query requires. build computes durations from
// nowMS, the cluster time.
func (api *API) sendView(c echo.Context, q exchange.Query, build func(m *fsm.Machine, nowMS int64) (any, error)) error {
	reading, err := api.x.Reads.Await(c, q)
	if err != nil {
		return err
	}
	return api.x.Replies.SendRead(c, func() (body any, err error) {
		api.x.Reads.View(c, func(m *fsm.Machine) { body, err = build(m, exchange.NowOf(m, reading)) })
		return body, err
	})
}

type semaphoreQuery struct {
	name             string
	epoch            uint64 // 0: any
	holders, waiters int
	since            since
}

// since is the part of a query that waits for a change.
type since struct {
	blocks bool   // an index is given
	index  uint64 // the change is after it
	wait   time.Duration
}

// readSince reads ?index= and ?wait=.
func (api *API) readSince(q exchange.Query) (s since, err error) {
	if s.index, err = q.Number("index", 0, 0, 1<<63-1); err != nil {
		return s, err
	}
	waitMS, err := q.WaitMS(api.x.Config.MaxWait.Milliseconds())
	_, s.blocks = q.Text("index")
	if _, waits := q.Text("wait"); waits && !s.blocks {
		return s, exchange.Invalid("wait", "A wait needs an index to wait for a change of.")
	}
	s.wait = time.Duration(waitMS) * time.Millisecond
	return s, err
}

// readSemaphore reads the name in a path, if the caller may read that semaphore, and its epoch.
func (api *API) readSemaphore(c echo.Context, q exchange.Query) (name string, epoch uint64, err error) {
	text, _ := exchange.PathParam(c, "name")
	if name, err = exchange.SemaphoreName("name", text); err != nil {
		return "", 0, err
	}
	if err = api.x.Rights.MayName(c, name); err != nil {
		return "", 0, err
	}
	epoch, err = q.Epoch()
	return name, epoch, err
}

func (api *API) readSemaphoreQuery(c echo.Context, q exchange.Query) (s semaphoreQuery, err error) {
	if s.name, s.epoch, err = api.readSemaphore(c, q); err != nil {
		return s, err
	}
	holders, err := q.Number("holders", DefaultPage, 0, MaxPage)
	if err != nil {
		return s, err
	}
	waiters, err := q.Number("waiters", DefaultPage, 0, MaxPage)
	if err != nil {
		return s, err
	}
	s.holders, s.waiters = int(holders), int(waiters)
	s.since, err = api.readSince(q)
	return s, err
}

func (api *API) getSemaphore(c echo.Context, q exchange.Query) error {
	s, err := api.readSemaphoreQuery(c, q)
	if err != nil {
		return err
	}
	if s.since.blocks {
		if err := api.awaitChange(c, q, s); err != nil {
			return err
		}
	}
	id := api.x.Rights.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, err := findSemaphore(m, s.name, s.epoch)
		if err != nil {
			return nil, err
		}
		c.Response().Header().Set("ETag", ETagOf(&found))
		return viewedSemaphore(m, found, s.holders, s.waiters, nowMS, id), nil
	})
}

func (api *API) listHolders(c echo.Context, q exchange.Query) error {
	return listOfPart(api, c, q, func(cursor string) (uint64, error) { return parseNumberCursor(cursorHolder, cursor) }, pageOfHolders)
}

func (api *API) listWaiters(c echo.Context, q exchange.Query) error {
	return listOfPart(api, c, q, parsePlaceCursor, pageOfWaiters)
}

// listOfPart sends a page of a list that belongs to one semaphore, or to one of its groups.
func listOfPart[P, B any](api *API, c echo.Context, q exchange.Query, parse func(cursor string) (P, error),
	page func(m *fsm.Machine, scope part, after P, limit int, nowMS int64, id *access.Identity) B) error {
	name, epoch, err := api.readSemaphore(c, q)
	if err != nil {
		return err
	}
	scope := part{name: name}
	if scope.group, scope.grouped, err = q.Group(); err != nil {
		return err
	}
	if scope.waiting, err = q.Flag("waiting"); err != nil {
		return err
	}
	limit, cursor, err := readPage(q)
	if err != nil {
		return err
	}
	after, err := parse(cursor)
	if err != nil {
		return err
	}
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, err := findSemaphore(m, name, epoch)
		if err != nil {
			return nil, err
		}
		_, known := m.Group(name, scope.group) // perhaps by a lease from a time when the semaphore had groups
		if scope.group != "" && found.Settings.Groups == fsm.NoGroups && !known {
			return nil, exchange.Refused(&fsm.Result{Code: fsm.Malformed, Rule: fsm.RuleGroup, Subject: name, Epoch: found.Epoch})
		}
		return page(m, scope, after, limit, nowMS, api.x.Rights.Caller(c)), nil
	})
}

// findSemaphore returns a semaphore, or the same refusal that the state machine gives for this name and epoch.
func findSemaphore(m *fsm.Machine, name string, epoch uint64) (fsm.SemaphoreView, error) {
	found, ok := m.Semaphore(name)
	switch {
	case !ok:
		return found, exchange.Refused(&fsm.Result{Code: fsm.UnknownSemaphore, Subject: name})
	case epoch != 0 && epoch != found.Epoch:
		return found, exchange.Refused(&fsm.Result{Code: fsm.EpochMismatch, Subject: name, Epoch: found.Epoch})
	}
	return found, nil
}

// awaitChange blocks until the semaphore is modified after s.since or is deleted, or the wait is over. It does not wait
// if the query's index is above the confirmed index, as after a restore. Then it blocks until the reply has its turn; a
// read without a wait needs no turn. The caller then reads the state.
func (api *API) awaitChange(c echo.Context, q exchange.Query, s semaphoreQuery) error {
	reading, err := api.x.Reads.Await(c, q)
	if err != nil || s.since.wait == 0 {
		return err
	}
	if s.since.index > reading.Index || api.changedSince(s) {
		return api.awaitTurn(c)
	}
	listen := func() (news <-chan struct{}, stop func()) { return api.x.Node.Changed(s.name) }
	return api.waitFor(c, s.since.wait, listen, func() bool { return api.changedSince(s) })
}

// waitFor blocks until changed reports true, the wait is over or the server shuts down, and then until the reply has its
// turn. It fails if the client hangs up, or if too many queries wait. It calls listen, then changed; when the channel of
// listen has news, it begins again.
func (api *API) waitFor(c echo.Context, wait time.Duration, listen func() (news <-chan struct{}, stop func()), changed func() bool) error {
	remove, err := api.x.Waits.AddWatcher(c, api.waiting)
	if err != nil {
		return err
	}
	defer remove()
	ctx, timer := c.Request().Context(), time.NewTimer(wait)
	defer timer.Stop()
	for over := false; !over; {
		news, stop := listen()
		if over = changed(); !over {
			select {
			case <-news:
			case <-timer.C:
				over = true
			case <-api.x.Waits.Closing():
				over = true
			case <-ctx.Done():
				stop()
				return ctx.Err()
			}
		}
		stop()
	}
	return api.awaitTurn(c)
}

// awaitTurn blocks until the reply to a blocking query has its turn, or the client hangs up. A query that did not have
// to wait takes a turn as well, since its client may repeat it at once.
func (api *API) awaitTurn(c echo.Context) error {
	end, err := api.x.Waits.TakeTurn(c.Request().Context(), exchange.ReplyCost)
	if err == nil {
		end()
	}
	return err
}

// changedSince reports whether a blocking query has a change to show.
func (api *API) changedSince(s semaphoreQuery) (changed bool) {
	api.x.Node.View(func(m *fsm.Machine) {
		found, err := findSemaphore(m, s.name, s.epoch)
		changed = err != nil || found.ModifiedIndex > s.since.index
	})
	return changed
}

func (api *API) listSessions(c echo.Context, q exchange.Query) error {
	limit, after, err := readNumberPage(q, CursorSession)
	if err != nil {
		return err
	}
	id := api.x.Rights.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, next := pageOfSessions(m, id, after, limit)
		body := SessionsBody{Sessions: []SessionBody{}, Next: next}
		for i := range found {
			body.Sessions = append(body.Sessions, viewedSession(m, &found[i], nowMS, id))
		}
		return body, nil
	})
}

func (api *API) getSession(c echo.Context, q exchange.Query) error {
	id, err := readSessionID(c)
	if err != nil {
		return err
	}
	caller := api.x.Rights.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, ok := m.Session(id)
		if !ok || !caller.SeesSession(found.Owner) {
			return nil, noSession(m, id, caller)
		}
		return viewedSession(m, &found, nowMS, caller), nil
	})
}

func readSessionID(c echo.Context) (uint64, error) {
	text, _ := exchange.PathParam(c, "id")
	return exchange.SessionID("session", text)
}

func (api *API) listLeases(c echo.Context, q exchange.Query) error {
	id, err := readSessionID(c)
	if err != nil {
		return err
	}
	limit, after, err := readNumberPage(q, cursorLease)
	if err != nil {
		return err
	}
	caller := api.x.Rights.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		if owner, _ := m.OwnerOf(id); !m.HasSession(id) || !caller.SeesSession(owner) {
			return nil, noSession(m, id, caller)
		}
		return pageOfLeases(m, id, after, limit, nowMS, caller), nil
	})
}

// noSession returns the state machine's refusal if a session does not live or the caller may not find it.
func noSession(m *fsm.Machine, id uint64, caller *access.Identity) *exchange.Problem {
	result := fsm.Result{Code: fsm.UnknownSession, Session: id}
	if owner, _ := m.OwnerOf(id); !caller.SeesSession(owner) {
		return exchange.Refused(&result)
	}
	switch cause, reason, _ := m.Ended(id); cause {
	case fsm.CauseExpired:
		result.Code = fsm.ExpiredSession
	case fsm.CauseRevoked, fsm.CauseMaxHold:
		result.Code, result.Refusal = fsm.Revoked, &fsm.Refusal{Reason: reason}
	}
	return exchange.Refused(&result)
}

// getLease shows the lease or the waiting request of a session for a semaphore.
func (api *API) getLease(c echo.Context, q exchange.Query) error {
	id, err := readSessionID(c)
	if err != nil {
		return err
	}
	name, epoch, err := api.readSemaphore(c, q)
	if err != nil {
		return err
	}
	group, _, err := q.Group()
	if err != nil {
		return err
	}
	reading, err := api.x.Reads.Await(c, q)
	if err != nil {
		return err
	}
	status, body := 0, any(nil)
	api.x.Reads.View(c, func(m *fsm.Machine) {
		if _, err = findSemaphore(m, name, epoch); err == nil {
			status, body, err = leaseOf(m, id, name, group, api.x.Rights.Caller(c), exchange.NowOf(m, reading))
		}
	})
	if err != nil {
		return err
	}
	return api.x.Replies.SendJSON(c, status, body)
}

func leaseOf(m *fsm.Machine, session uint64, name, group string, caller *access.Identity, nowMS int64) (status int, body any, err error) {
	owner, _ := m.OwnerOf(session)
	if !m.HasSession(session) || !caller.SeesSession(owner) {
		return 0, nil, noSession(m, session, caller)
	}
	if l, held := m.Lease(session, name, group); held {
		if l.Revoked {
			return 0, nil, exchange.Refused(&fsm.Result{Code: fsm.Revoked, Session: session, Subject: name, Epoch: l.Epoch,
				Refusal: &fsm.Refusal{Reason: l.Reason}})
		}
		return http.StatusOK, viewedLease(&l, nowMS), nil
	}
	if w, waits := m.Request(session, name, group); waits {
		return http.StatusAccepted, viewedRequest(&w, nowMS, caller), nil
	}
	return 0, nil, exchange.Refused(&fsm.Result{Code: fsm.NotHeld, Session: session, Subject: name})
}

// leasesWithin bounds how long the reply to a renewal waits until this node has applied the renewal. After that the
// reply is sent without leases.
const leasesWithin = 200 * time.Millisecond

// LeasesAt returns the leases of the reply's session that the caller may read. It returns nil if this node has not
// applied the entry of the reply within leasesWithin, or if the reply memory has no room. The caller releases the
// reserved bytes.
func (api *API) LeasesAt(c echo.Context, reply *calls.Reply) (_ *[]HeldBody, bytes int64) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), leasesWithin)
	defer cancel()
	if _, err := api.x.Node.Read(ctx, calls.Consistency{Stale: true, MinIndex: reply.Index}); err != nil {
		return nil, 0
	}
	var held []fsm.LeaseView
	caller := api.x.Rights.Caller(c)
	api.x.Node.View(func(m *fsm.Machine) {
		held = slices.DeleteFunc(m.Leases(reply.Session), func(l fsm.LeaseView) bool { return !caller.Sees(l.Semaphore) })
	})
	for i := range held {
		bytes += int64(memberBytes + len(held[i].Semaphore) + len(held[i].Reason) + slotBytes(held[i].DetailsOrZero().Slots))
	}
	bytes, ok := api.x.ReplyMemory.Reserve(bytes)
	if !ok {
		return nil, 0
	}
	leases := make([]HeldBody, len(held))
	for i := range held {
		leases[i] = HeldBody{viewedLease(&held[i], reply.NowMS), RevokedBody{held[i].Revoked, held[i].Reason}}
	}
	return &leases, bytes
}

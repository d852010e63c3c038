package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// The headers of a backup, in addition to the header with its index.
const (
	HeaderTerm          = "X-Signalbox-Term"
	HeaderCluster       = "X-Signalbox-Cluster"
	HeaderClusterTimeMS = "X-Signalbox-Cluster-Time-Ms"
)

// maxSent bounds how many backups are sent at a time: each keeps a state in memory.
const maxSent = 2

// API serves the routes of backups.
type API struct {
	x     *exchange.Exchange
	limit int64         // of the bytes of a backup to restore
	turns chan struct{} // holds a value for each backup that is sent
}

// New returns the handlers of the routes.
func New(x *exchange.Exchange, limit int64) *API {
	return &API{x: x, limit: limit, turns: make(chan struct{}, maxSent)}
}

// Routes returns the routes.
func (s *API) Routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET", "/v1/snapshot", s.get),
		exchange.On("PUT", "/v1/snapshot", s.put),
	}
}

// get streams a backup.
func (s *API) get(c echo.Context) error {
	if _, err := exchange.ParseQuery(c); err != nil {
		return err
	}
	if s.x.Rights.IsAdmin(c) { // the node refuses other clients
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		default:
			return exchange.LimitReached("backups", maxSent, "This node sends as many backups at a time as it can. Try again later, or at another node.")
		}
	}
	b, err := s.x.Node.Backup(c.Request().Context())
	if err != nil {
		return err
	}
	response := c.Response()
	s.x.Replies.SetIndex(c, b.Header.Index)
	header := response.Header()
	header.Set(HeaderTerm, strconv.FormatUint(b.Header.Term, 10))
	header.Set(HeaderCluster, hex.EncodeToString(b.Header.Cluster[:]))
	header.Set(HeaderClusterTimeMS, strconv.FormatInt(b.Header.ClusterTimeMS, 10))
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="signalbox-%d.backup"`, b.Header.Index))
	response.WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	if err := b.Write(&stream{c.Request().Context(), s.x, response}); err != nil {
		s.x.Config.Logger.Warn("a backup was not sent whole", exchange.LogPairs(c, "error", err)...)
		exchange.CutOff(response)
	}
	return nil
}

// stream gives a client a time limit for each part of a backup, and no limit for the whole. It ends with the request,
// which ends when its token is withdrawn.
type stream struct {
	ctx context.Context
	x   *exchange.Exchange
	to  http.ResponseWriter
}

func (s *stream) Write(part []byte) (int, error) {
	if s.x.Waits.Closed() {
		return 0, outcome.ErrDraining
	}
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	s.x.Replies.LimitWrites(s.to)
	return s.to.Write(part)
}

// put restores a backup. If this node does not lead, it first takes over the leadership.
func (s *API) put(c echo.Context) error {
	q, err := exchange.ParseQuery(c, "cluster", "from", "sessions")
	if err != nil {
		return err
	}
	sessions, present := q.Text("sessions")
	if !present {
		sessions = "keep"
	}
	if sessions != "keep" && sessions != "end" {
		return exchange.Invalid("sessions", "Sessions are kept with the time that they had left (keep, the default) or ended (end).")
	}
	order := backup.Order{EndSessions: sessions == "end"}
	id, err := clusterID(q, "cluster")
	if err == nil && id == nil {
		err = exchange.Invalid("cluster", "Name the cluster whose whole state is to be replaced, by its id. GET /v1/cluster shows it.")
	}
	if err != nil {
		return err
	}
	if order.From, err = clusterID(q, "from"); err != nil {
		return err
	}
	if s.x.Rights.IsAdmin(c) { // before the client sends the body; the node refuses other clients
		if err := s.prepare(c.Request().Context(), *id); err != nil {
			return err
		}
	}
	body, err := s.x.Bodies.Stream(c, s.limit)
	if err != nil {
		return err
	}
	done, err := s.x.Node.Restore(c.Request().Context(), body, order)
	switch {
	case errors.Is(err, outcome.ErrNotLeader):
		return s.notLeader()
	case err != nil:
		return err
	}
	s.x.Replies.SetIndex(c, done.Index)
	return s.x.Replies.SendJSON(c, http.StatusOK, newRestoredBody(done, sessions))
}

// clusterID reads the id of a cluster; nil: the parameter is absent.
func clusterID(q exchange.Query, name string) (*fsm.ClusterID, error) {
	text, present := q.Text(name)
	if !present {
		return nil, nil
	}
	var id fsm.ClusterID
	if raw, err := hex.DecodeString(text); err != nil || copy(id[:], raw) != len(raw) || id.String() != text {
		return nil, exchange.Invalid(name, "A cluster's id is 32 lower-case hexadecimal digits.")
	}
	return &id, nil
}

// prepare refuses a restore into another cluster than this node's, and makes this node the leader.
func (s *API) prepare(ctx context.Context, id fsm.ClusterID) error {
	status := s.x.Node.Status()
	switch {
	case status.Leader == "" || status.Cluster == "":
		return outcome.ErrNoLeader
	case status.Cluster != id.String():
		return exchange.NewProblem("precondition-failed", fmt.Sprintf("This node is of cluster %s, and not of %s. The request had no effect.", status.Cluster, id))
	case status.Leader == status.Node:
		return nil
	}
	if err := s.x.Node.TransferLeadership(ctx, status.Node); err != nil {
		s.x.Config.Logger.Warn("no restore here: the leadership could not be taken over", "leader", status.Leader, "error", err)
		return s.notLeader()
	}
	_, err := s.x.Node.Read(ctx, calls.Consistency{}) // waits for this node's term
	return err
}

// notLeader refuses a restore on a node that does not lead, and names the leader.
func (s *API) notLeader() error {
	status := s.x.Node.Status()
	if status.Leader == "" || status.Leader == status.Node { // elected, and about to lead
		return outcome.ErrNoLeader
	}
	p := exchange.ProblemOf(outcome.ErrNotLeader)
	p.Leader = status.Leader
	for _, m := range status.Members {
		if m.ID == status.Leader {
			p.Peer = m.Address
		}
	}
	return p
}

type restoredBody struct {
	Index    uint64     `json:"index"`    // at which the state took its place
	Sessions string     `json:"sessions"` // keep or end
	Backup   backupBody `json:"backup"`
}

type backupBody struct {
	Index         uint64    `json:"index"`
	Term          uint64    `json:"term"`
	Cluster       string    `json:"cluster"`
	ClusterTimeMS int64     `json:"cluster_time_ms"`
	Level         uint32    `json:"level"`
	WallTime      time.Time `json:"wall_time"`
}

func newRestoredBody(done backup.Restored, sessions string) restoredBody {
	from := done.From
	return restoredBody{Index: done.Index, Sessions: sessions, Backup: backupBody{Index: from.Index, Term: from.Term,
		Cluster: hex.EncodeToString(from.Cluster[:]), ClusterTimeMS: from.ClusterTimeMS, Level: from.Level, WallTime: from.WallTime}}
}

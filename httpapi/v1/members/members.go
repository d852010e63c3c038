package members

import (
	"context"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// API serves the routes of the cluster and its members.
type API struct{ x *exchange.Exchange }

// New returns the handlers of the routes.
func New(x *exchange.Exchange) *API { return &API{x} }

// Routes returns the routes.
func (m *API) Routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET", "/v1/cluster", m.getCluster),
		exchange.On("PUT", "/v1/cluster/members/:member", m.putMember),
		exchange.On("DELETE", "/v1/cluster/members/:member", m.deleteMember),
		exchange.On("POST", "/v1/cluster/leader", m.postLeader),
		exchange.On("PUT", "/v1/cluster/level", m.putLevel),
	}
}

func (m *API) getCluster(c echo.Context) error {
	if _, err := exchange.ParseQuery(c, exchange.ReadParams()...); err != nil {
		return err
	}
	return m.sendCluster(c, http.StatusOK)
}

func (m *API) sendCluster(c echo.Context, code int) error {
	status := m.x.Node.Status()
	m.x.Replies.SetIndex(c, status.AppliedIndex)
	return m.x.Replies.SendJSON(c, code, newClusterBody(status))
}

// memberTimeout bounds a PUT of a member, also without a leader. The leader waits 10 s for the member to
// catch up and vote. After that the status is 202, and the member gets its vote once it has caught up.
const memberTimeout = 30 * time.Second

func (m *API) putMember(c echo.Context) error {
	id, err := memberID(c)
	if err != nil {
		return err
	}
	texts, err := m.readTextFields(c, "peer")
	if err != nil {
		return err
	}
	if cluster.CheckPeerAddress(texts["peer"]) != nil {
		return exchange.Invalid("peer", "A peer is host:port, a name or the address of one host, as the other nodes reach it.")
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), memberTimeout)
	defer cancel()
	err = m.x.Node.AddMember(ctx, id, texts["peer"])
	if errors.Is(err, outcome.ErrCatchingUp) {
		return m.sendCluster(c, http.StatusAccepted)
	}
	if err != nil {
		return err
	}
	return m.sendCluster(c, http.StatusOK)
}

func (m *API) deleteMember(c echo.Context) error {
	id, err := memberID(c)
	if err != nil {
		return err
	}
	if _, err := m.readTextFields(c); err != nil {
		return err
	}
	if err := m.checkKnown(c, id); err != nil {
		return err
	}
	if err := m.x.Node.RemoveMember(c.Request().Context(), id); err != nil {
		return err
	}
	return m.sendCluster(c, http.StatusOK)
}

// postLeader transfers the leadership: to the member in {"id":…}, or to any voter that has caught up.
func (m *API) postLeader(c echo.Context) error {
	texts, err := m.readTextFields(c, "id")
	if err != nil {
		return err
	}
	id, named := texts["id"]
	if named && !validMember(id) {
		return exchange.Invalid("id", memberForm)
	}
	if named {
		if err := m.checkKnown(c, id); err != nil {
			return err
		}
	}
	if err := m.x.Node.TransferLeadership(c.Request().Context(), id); err != nil {
		return err
	}
	return m.sendCluster(c, http.StatusOK)
}

// readFields reads a JSON object that may have only fields with these names. It refuses a query.
func (m *API) readFields(c echo.Context, names ...string) (map[string]strictjson.Value, error) {
	if _, err := exchange.ParseQuery(c); err != nil {
		return nil, err
	}
	body, err := m.x.Bodies.ReadObject(c, m.x.Config.BodyBytes)
	if err != nil {
		return nil, err
	}
	defer m.x.Bodies.Release(c) // the change may wait for long
	values := map[string]strictjson.Value{}
	for raw, value := range body.Members() {
		if !slices.Contains(names, string(raw)) {
			return nil, exchange.Invalid(string(raw), "This request does not take this member.")
		}
		values[string(raw)] = value
	}
	return values, nil
}

// readTextFields is readFields for a body of texts.
func (m *API) readTextFields(c echo.Context, names ...string) (map[string]string, error) {
	body, err := m.readFields(c, names...)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, value := range body {
		text, isText := value.Text()
		if !isText {
			return nil, exchange.Invalid(name, "This is not a text.")
		}
		texts[name] = text
	}
	return texts, nil
}

// putLevel raises the cluster's feature level, {"level":N}.
func (m *API) putLevel(c echo.Context) error {
	body, err := m.readFields(c, "level")
	if err != nil {
		return err
	}
	level, ok := int64(0), false
	if value, present := body["level"]; present {
		level, ok = value.Integer()
	}
	if !ok || level < 1 || level > math.MaxUint32 {
		return exchange.Invalid("level", "A feature level is a whole number from 1 on.")
	}
	if err := m.x.Node.RaiseLevel(c.Request().Context(), uint32(level)); err != nil {
		return err
	}
	return m.sendCluster(c, http.StatusOK)
}

var validMember = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString

const memberForm = "A member's id is 1 to 64 letters, digits, dots, dashes or underscores."

func memberID(c echo.Context) (string, error) {
	id, ok := exchange.PathParam(c, "member")
	if !ok || !validMember(id) {
		return "", exchange.Invalid("id", memberForm)
	}
	return id, nil
}

// checkKnown fails if no member has this id and the client is an admin. For any other client it returns nil: the node
// then refuses the request, and the client does not learn which ids exist.
func (m *API) checkKnown(c echo.Context, id string) error {
	if !m.x.Rights.IsAdmin(c) || slices.ContainsFunc(m.x.Node.Status().Members, func(other cluster.Member) bool { return other.ID == id }) {
		return nil
	}
	return exchange.NewProblem("unknown-member", "No member of the cluster has this id.")
}

type memberBody struct {
	ID            string `json:"id"`
	Peer          string `json:"peer"`
	Voter         bool   `json:"voter"`
	Leader        bool   `json:"leader"`
	State         string `json:"state"`           // up, down or unknown, as this node sees it
	LastContactMS *int64 `json:"last_contact_ms"` // null: it has not replied since this node started
	Knows         uint32 `json:"knows"`           // the highest feature level that its program knows
	// Lag and Storage ("room", "low" or "full") are null unless the member is up.
	Lag     *uint64 `json:"lag"`
	Storage *string `json:"storage"`
}

type clusterBody struct {
	Node          string       `json:"node"`
	Cluster       *string      `json:"cluster"` // its id; null while this node doesn't know it
	Leader        *string      `json:"leader"`
	Term          uint64       `json:"term"`
	CommitIndex   uint64       `json:"commit_index"`
	AppliedIndex  uint64       `json:"applied_index"`
	ClusterTimeMS int64        `json:"cluster_time_ms"`
	StateHash     string       `json:"state_hash"`
	Level         uint32       `json:"level"`
	Majority      bool         `json:"majority"` // this node and the voters that are up are a majority
	Members       []memberBody `json:"members"`
}

func newClusterBody(s cluster.Status) clusterBody {
	body := clusterBody{Node: s.Node, Term: s.Term, CommitIndex: s.CommitIndex, AppliedIndex: s.AppliedIndex,
		ClusterTimeMS: s.ClusterTimeMS, StateHash: hex.EncodeToString(s.StateHash[:]), Level: s.Level, Majority: s.Majority(), Members: []memberBody{}}
	if s.Leader != "" {
		body.Leader = &s.Leader
	}
	if s.Cluster != "" {
		body.Cluster = &s.Cluster
	}
	for _, m := range s.Members {
		member := memberBody{ID: m.ID, Peer: m.Address, Voter: m.Voter, Leader: m.Leader, State: string(m.State), Knows: m.Knows}
		if m.LastContact >= 0 {
			ms := int64(m.LastContact / time.Millisecond)
			member.LastContactMS = &ms
		}
		if m.State == cluster.MemberUp {
			storage := storageOf(m)
			member.Lag, member.Storage = &m.Lag, &storage
		}
		body.Members = append(body.Members, member)
	}
	return body
}

func storageOf(m cluster.Member) string {
	switch {
	case m.Spent:
		return "full"
	case m.Low:
		return "low"
	}
	return "room"
}

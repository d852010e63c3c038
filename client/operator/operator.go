package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Operator sends its calls through a Client, with the Client's errors, time-outs and Close. All its methods are safe
// for concurrent use.
type Operator struct{ calls *calls.Caller }

// New returns an Operator. It sends no request, and needs no Close.
func New(c *client.Client) *Operator { return &Operator{c.Calls()} }

// ReadOption is an option of GetSession and the lists: Stale, MinIndex. The lists also take PageSize, and ListHolders
// and ListWaiters take OfGroup.
type ReadOption func(url.Values)

// LeaseOption is an option of ReleaseLease, Revoke and Settle: OfGroup.
type LeaseOption func(url.Values)

// OfGroup selects the group of a semaphore. It is a LeaseOption, a ReadOption and an EventOption. Without it,
// ReleaseLease, Revoke and Settle use the group "", and lists and events have all groups.
func OfGroup(name string) func(url.Values) { return func(q url.Values) { q.Set("group", name) } }

// Stale lets the node reply from its own state, which may be behind the cluster's.
func Stale() ReadOption { return func(q url.Values) { q.Set("consistency", "stale") } }

// MinIndex makes the node wait until it has applied the log up to n.
func MinIndex(n uint64) ReadOption {
	return func(q url.Values) { q.Set("min_index", strconv.FormatUint(n, 10)) }
}

// PageSize is how many members of a list are read in one HTTP request: 1 to 1,000, by default 100.
func PageSize(n int) ReadOption { return func(q url.Values) { q.Set("limit", strconv.Itoa(n)) } }

func queryOf(opts []ReadOption) url.Values {
	query := url.Values{}
	for _, option := range opts {
		option(query)
	}
	return query
}

// errNoName refuses an empty name, because its path would be another route.
var errNoName = invalid("name", "A semaphore's name has 1 to 512 bytes.")

// invalid makes a refusal of arguments whose path would be another route. No request is sent.
func invalid(field, detail string) error {
	return &client.Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid", Detail: detail, Field: field}
}

// Cluster is the cluster as seen by one node. It belongs to the caller.
type Cluster struct {
	Node         string   `json:"node"`    // the node that replied
	ID           string   `json:"cluster"` // "" while the node does not know it
	Leader       string   `json:"leader"`  // "" while the node knows no leader
	Term         uint64   `json:"term"`
	CommitIndex  uint64   `json:"commit_index"`
	AppliedIndex uint64   `json:"applied_index"`
	StateHash    string   `json:"state_hash"`
	Level        uint32   `json:"level"`    // the feature level
	Majority     bool     `json:"majority"` // the voters that are up, with this node, are a majority
	Members      []Member `json:"members"`
	// ClusterTime is the clock by which leases expire. It stands still without a leader.
	ClusterTime time.Duration `json:"-"`
}

// Member is one node of the cluster.
type Member struct {
	ID     string `json:"id"`
	Peer   string `json:"peer"` // host:port at which the other nodes reach it
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`
	State  string `json:"state"` // "up", "down" or "unknown", as the node that replied sees it
	Knows  uint32 `json:"knows"` // highest feature level that its program knows
	// Storage tells how full its disk is: "room", "low" (commands that grow the state are refused), "full" (all
	// commands are refused), or "" unless the member is up.
	Storage string `json:"storage"`
	// Lag is how many log entries the member is behind; negative unless it is up.
	Lag int64 `json:"lag"`
	// LastContact is the time since the member last replied to the node that sent this; negative if it has not replied
	// since that node started.
	LastContact time.Duration `json:"-"`
}

// UnmarshalJSON reads a cluster as the API sends it.
func (s *Cluster) UnmarshalJSON(data []byte) error {
	type plain Cluster
	return reply.ReadTimes(data, (*plain)(s), reply.Times{"cluster_time_ms": &s.ClusterTime})
}

// MarshalJSON writes a cluster with the API's members.
func (s Cluster) MarshalJSON() ([]byte, error) {
	type plain Cluster
	return reply.WriteTimes(plain(s), reply.Member("cluster_time_ms", s.ClusterTime))
}

// UnmarshalJSON reads a member as the API sends it.
func (m *Member) UnmarshalJSON(data []byte) error {
	type plain Member
	m.LastContact, m.Lag = -time.Millisecond, -1
	return reply.ReadTimes(data, (*plain)(m), reply.Times{"last_contact_ms": &m.LastContact})
}

// MarshalJSON writes a member with the API's members.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	shown := struct {
		plain
		Lag           *int64  `json:"lag"`
		LastContactMS *int64  `json:"last_contact_ms"`
		Storage       *string `json:"storage"`
	}{plain: plain(m)}
	if m.Lag >= 0 {
		shown.Lag = &m.Lag
	}
	if m.Storage != "" {
		shown.Storage = &m.Storage
	}
	if ms := m.LastContact.Milliseconds(); ms >= 0 {
		shown.LastContactMS = &ms
	}
	return json.Marshal(shown)
}

// The refusals of changes of the cluster. Compare with errors.Is.
var (
	ErrUnknownMember error = calls.Code("unknown-member")
	ErrMemberRefused error = calls.Code("member-refused") // see client.Error.Reason
	ErrNoSuccessor   error = calls.Code("no-successor")   // no member can take over
	ErrLevelUnknown  error = calls.Code("level-unknown")  // see client.Error.Reason
	ErrBackupRefused error = calls.Code("backup-refused") // see client.Error.Reason
)

func clusterCall(method string, body any, more ...string) calls.Call {
	return calls.Call{Method: method, Path: append([]string{"v1", "cluster"}, more...), Body: body}
}

// Cluster reads the members, the leader and the state of the log from any node, even if there is no leader.
func (o *Operator) Cluster(ctx context.Context) (*Cluster, error) {
	s := new(Cluster)
	if _, err := o.calls.Read(ctx, clusterCall(http.MethodGet, nil), s); err != nil {
		return nil, err
	}
	return s, nil
}

// AddMember adds a node. peer is the address at which the other nodes reach it. voting reports whether the node has a
// vote already; if not, it gets one once it has caught up.
func (o *Operator) AddMember(ctx context.Context, id, peer string) (voting bool, err error) {
	if id == "" {
		return false, errNoMember
	}
	r, err := o.calls.Do(ctx, clusterCall(http.MethodPut, map[string]any{"peer": peer}, "members", id))
	return r.Status == http.StatusOK, err
}

// RemoveMember removes a node. It fails with ErrMemberRefused if no majority would be left.
func (o *Operator) RemoveMember(ctx context.Context, id string) error {
	if id == "" {
		return errNoMember
	}
	r, err := o.calls.Do(ctx, clusterCall(http.MethodDelete, nil, "members", id))
	if r.Unsure && errors.Is(err, ErrUnknownMember) {
		return nil // an earlier attempt has removed it
	}
	return err
}

var errNoMember = invalid("id", "A member's id is not empty.")

// TransferLeadership transfers the leadership to a member or, if id is "", to any member that has caught up. It fails
// with ErrNoSuccessor if no member can take over. If id is "" and the outcome is unknown, it is not repeated, because
// a second call would transfer the leadership again.
func (o *Operator) TransferLeadership(ctx context.Context, id string) error {
	body := map[string]any{}
	if id != "" {
		body["id"] = id
	}
	k := clusterCall(http.MethodPost, body, "leader")
	k.NoRepeat = id == ""
	_, err := o.calls.Do(ctx, k)
	return err
}

// RaiseLevel raises the feature level of the cluster, which can't be undone. It fails with ErrLevelUnknown if a member
// does not know the level or does not reply.
func (o *Operator) RaiseLevel(ctx context.Context, level uint32) error {
	_, err := o.calls.Do(ctx, clusterCall(http.MethodPut, map[string]any{"level": level}, "level"))
	return err
}

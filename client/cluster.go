package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// Cluster is the cluster as one node knows it. It belongs to the caller.
type Cluster struct {
	Node         string   `json:"node"`    // the one that replied
	ID           string   `json:"cluster"` // "" while the node does not know it
	Leader       string   `json:"leader"`  // "" while the node knows none
	Term         uint64   `json:"term"`
	CommitIndex  uint64   `json:"commit_index"`
	AppliedIndex uint64   `json:"applied_index"`
	StateHash    string   `json:"state_hash"`
	Level        uint32   `json:"level"` // the feature level
	Members      []Member `json:"members"`
	// ClusterTime is the clock by which leases live; it stands still without a leader.
	ClusterTime time.Duration `json:"-"`
}

// Member is one node of the cluster.
type Member struct {
	ID     string `json:"id"`
	Peer   string `json:"peer"` // host:port for other nodes
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`
	Lag    uint64 `json:"lag"`   // entries behind the leader
	Knows  uint32 `json:"knows"` // the highest feature level that its program knows
	// LastContact is since the leader has heard from it; below 0: the node does not know.
	LastContact time.Duration `json:"-"`
}

// UnmarshalJSON reads a cluster as the API sends it.
func (s *Cluster) UnmarshalJSON(data []byte) error {
	type plain Cluster
	return readTimes(data, (*plain)(s), times{"cluster_time_ms": &s.ClusterTime})
}

// MarshalJSON writes a cluster with the API's members.
func (s Cluster) MarshalJSON() ([]byte, error) {
	type plain Cluster
	return writeTimes(plain(s), named{"cluster_time_ms", s.ClusterTime})
}

// UnmarshalJSON reads a member as the API sends it.
func (m *Member) UnmarshalJSON(data []byte) error {
	type plain Member
	m.LastContact = -time.Millisecond
	return readTimes(data, (*plain)(m), times{"last_contact_ms": &m.LastContact})
}

// MarshalJSON writes a member with the API's members.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	shown := struct {
		plain
		LastContactMS *int64 `json:"last_contact_ms"`
	}{plain: plain(m)}
	if ms := m.LastContact.Milliseconds(); ms >= 0 {
		shown.LastContactMS = &ms
	}
	return json.Marshal(shown)
}

// The refusals of changes of the cluster. Compare with errors.Is.
var (
	ErrUnknownMember error = code("unknown-member")
	ErrMemberRefused error = code("member-refused") // see Error.Reason
	ErrNoSuccessor   error = code("no-successor")   // no member can take over
	ErrLevelUnknown  error = code("level-unknown")  // see Error.Reason
	ErrHistoryGone   error = code("history-gone")   // events that a node no longer has
)

func clusterCall(method string, body any, more ...string) calls.Call {
	return calls.Call{Method: method, Path: append([]string{"v1", "cluster"}, more...), Body: body}
}

// Cluster reads the members, the leader and the state of the log, as the node that
// replies knows them, also without a leader.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	s := new(Cluster)
	if _, err := c.calls.Read(ctx, clusterCall(http.MethodGet, nil), s); err != nil {
		return nil, err
	}
	return s, nil
}

// AddMember adds a node by the address that it has for other nodes. voting reports whether it
// has its vote already; else it gets its vote by itself once it has caught up.
func (c *Client) AddMember(ctx context.Context, id, peer string) (voting bool, err error) {
	if id == "" {
		return false, errNoMember
	}
	r, err := c.calls.Do(ctx, clusterCall(http.MethodPut, map[string]any{"peer": peer}, "members", id))
	return r.Status == http.StatusOK, err
}

// RemoveMember removes a node. ErrMemberRefused when no majority would be left.
func (c *Client) RemoveMember(ctx context.Context, id string) error {
	if id == "" {
		return errNoMember
	}
	r, err := c.calls.Do(ctx, clusterCall(http.MethodDelete, nil, "members", id))
	if r.Unsure && errors.Is(err, ErrUnknownMember) {
		return nil // an attempt before, whose reply was lost, has removed it
	}
	return err
}

var errNoMember = &Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid",
	Detail: "A member's id is not empty.", Field: "id"}

// TransferLeadership hands the leadership over to a member, or, without an id, to any
// that has caught up. ErrNoSuccessor if no member could take it. Without an id, it is not
// repeated when its outcome is unknown: a second one would hand over again.
func (c *Client) TransferLeadership(ctx context.Context, id string) error {
	body := map[string]any{}
	if id != "" {
		body["id"] = id
	}
	k := clusterCall(http.MethodPost, body, "leader")
	k.Once = id == ""
	_, err := c.calls.Do(ctx, k)
	return err
}

// RaiseLevel raises the feature level of the cluster, for ever. ErrLevelUnknown if a
// member's program does not know it or does not reply.
func (c *Client) RaiseLevel(ctx context.Context, level uint32) error {
	_, err := c.calls.Do(ctx, clusterCall(http.MethodPut, map[string]any{"level": level}, "level"))
	return err
}

// backupQuiet is how long a node may send no byte of a backup.
const backupQuiet = time.Minute

// Backup copies a backup of the whole state into w and returns its index. The bytes
// are not verified: "signalbox inspect" does that, and so does a restore.
func (c *Client) Backup(ctx context.Context, w io.Writer) (index uint64, err error) {
	s, err := calls.Open(ctx, c.calls, []string{"v1", "snapshot"}, nil, backupQuiet)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err = io.Copy(w, s); err != nil {
		return 0, fmt.Errorf("signalbox: the backup is not complete: %w", err)
	}
	return s.Index, nil
}

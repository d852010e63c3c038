package consulclient

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

// sessionCases are what Consul's own tests ask of sessions.
var sessionCases = []checklistCase{
	{"session create and destroy", sessionCreateAndDestroy},
	{"session renew", sessionRenew},
	{"session renew after its destroy", sessionRenewAfterDestroy},
	{"session renewed again and again", sessionRenewedAgainAndAgain},
	{"session whose renewals end", sessionWhoseRenewalsEnd},
	{"session info", sessionInfo},
	{"session info without checks", sessionInfoWithoutChecks},
	{"session by node", sessionByNode},
	{"session list", sessionList},
}

func (s *site) created(entry *api.SessionEntry) (id string) {
	s.Helper()
	id, meta, err := s.Session().Create(entry, nil)
	s.ok(err)
	s.Cleanup(func() { _, _ = s.Session().Destroy(id, nil) })
	s.check(id != "" && meta.RequestTime > 0, "id %q, %+v", id, meta)
	return id
}

func sessionCreateAndDestroy(s *site) {
	id := s.created(nil)
	_, err := s.Session().Destroy(id, nil)
	s.ok(err)
	entry, _, err := s.Session().Info(id, nil)
	s.check(err == nil && entry == nil, "%+v %v", entry, err)
}

func sessionRenew(s *site) {
	id := s.created(&api.SessionEntry{Behavior: api.SessionBehaviorDelete, TTL: "500s"})
	entry, _, err := s.Session().Renew(id, nil)
	s.ok(err)
	s.check(entry != nil && entry.ID == id && entry.TTL == "500s", "%+v", entry)
}

func sessionRenewAfterDestroy(s *site) {
	id := s.created(&api.SessionEntry{Behavior: api.SessionBehaviorDelete, TTL: "500s"})
	_, err := s.Session().Destroy(id, nil)
	s.ok(err)
	entry, _, err := s.Session().Renew(id, nil)
	s.check(err == nil && entry == nil, "%+v %v", entry, err)
}

// sessionRenewedAgainAndAgain: the client renews twice a TTL, hears of an operator's destroy at the
// next renewal, and gives up.
func sessionRenewedAgainAndAgain(s *site) {
	id := s.created(&api.SessionEntry{TTL: "10s"})
	over := make(chan error, 1)
	go func() { over <- s.Session().RenewPeriodic("1s", id, nil, nil) }() // the first after 0.5 s
	select {
	case err := <-over:
		s.Fatalf("renewals ended: %v", err)
	case <-time.After(time.Second):
	}
	_, err := s.Session().Destroy(id, nil)
	s.ok(err)
	select {
	case err := <-over:
		s.fails(err, api.ErrSessionExpired)
	case <-time.After(soon):
		s.Fatal("the client goes on renewing a session that is gone")
	}
}

// sessionWhoseRenewalsEnd: at the end of its renewals the client destroys the session.
func sessionWhoseRenewalsEnd(s *site) {
	id := s.created(&api.SessionEntry{TTL: "10s"})
	done := make(chan struct{})
	close(done)
	s.ok(s.Session().RenewPeriodic("10s", id, nil, done))
	eventually(s.T, soon, func() error {
		if entry, _, err := s.Session().Info(id, nil); err != nil || entry != nil {
			return fmt.Errorf("%+v %w", entry, err)
		}
		return nil
	})
}

func sessionInfo(s *site) {
	id := s.created(nil)
	entry, meta, err := s.Session().Info(id, nil)
	s.ok(err)
	s.check(entry != nil && entry.ID == id && entry.LockDelay == 15*time.Second && entry.Behavior == api.SessionBehaviorRelease &&
		entry.CreateIndex > 0 && entry.Node == s.cluster.name(s.node) && slices.Equal(entry.NodeChecks, []string{"serfHealth"}), "%+v", entry)
	s.read(meta)
}

func sessionInfoWithoutChecks(s *site) {
	id := s.session(api.SessionEntry{Name: "x", LockDelay: 2 * time.Second})
	entry, meta, err := s.Session().Info(id, nil)
	s.ok(err)
	s.check(entry != nil && entry.ID == id && entry.Name == "x" && entry.LockDelay == 2*time.Second && len(entry.NodeChecks) == 0 &&
		len(entry.ServiceChecks) == 0, "%+v", entry)
	s.read(meta)
}

func sessionByNode(s *site) {
	id := s.created(nil)
	entry, _, err := s.Session().Info(id, nil)
	s.ok(err)
	entries, meta, err := s.Session().Node(entry.Node, nil)
	s.ok(err)
	s.check(slices.ContainsFunc(entries, func(e *api.SessionEntry) bool { return e.ID == id }), "not among %d of the node", len(entries))
	s.read(meta)
	entries, _, err = s.Session().Node("elsewhere", nil)
	s.check(err == nil && len(entries) == 0, "%v %v", entries, err)
}

func sessionList(s *site) {
	id := s.created(nil)
	entries, meta, err := s.Session().List(nil)
	s.ok(err)
	s.check(slices.ContainsFunc(entries, func(e *api.SessionEntry) bool { return e.ID == id }), "not among %d", len(entries))
	s.read(meta)
}

// read checks what each reply to a read says.
func (s *site) read(meta *api.QueryMeta) {
	s.Helper()
	s.check(meta.LastIndex > 0 && meta.KnownLeader && meta.LastContact == 0, "%+v", meta)
}

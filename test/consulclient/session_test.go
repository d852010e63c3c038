package consulclient

import (
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"
)

// sessionCases are what Consul's own tests ask of sessions, as far as its client does more than to send a request:
// httpapi/consul/testdata has the replies.
var sessionCases = []checklistCase{
	{"session renewed again and again", sessionRenewedAgainAndAgain},
	{"session whose renewals end", sessionWhoseRenewalsEnd},
}

func (s *site) created(entry *api.SessionEntry) (id string) {
	s.Helper()
	id, meta, err := s.Session().Create(entry, nil)
	s.ok(err)
	s.Cleanup(func() { _, _ = s.Session().Destroy(id, nil) })
	s.check(id != "" && meta.RequestTime > 0, "id %q, %+v", id, meta)
	return id
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

// read checks what each reply to a read says.
func (s *site) read(meta *api.QueryMeta) {
	s.Helper()
	s.check(meta.LastIndex > 0 && meta.KnownLeader && meta.LastContact == 0, "%+v", meta)
}

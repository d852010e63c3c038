package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
)

// TestRealRestore makes a backup, changes the state and restores it, at whichever node leads.
func TestRealRestore(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		s.leader()
		s.put("db", 3)
		lease, err := c.Acquire(s.ctx, "db", client.TTL(time.Hour))
		s.ok(err)
		s.ok(lease.Detach())
		o := operator.New(c)
		var backup bytes.Buffer
		at, err := o.Backup(s.ctx, &backup)
		s.ok(err)
		cluster, err := o.Cluster(s.ctx)
		s.ok(err)
		id := cluster.ID
		s.ok(o.TransferLeadership(s.ctx, map[string]string{"n1": "n2", "n2": "n3", "n3": "n2"}[s.leader()])) // n1 is asked first
		for _, opts := range [][]operator.RestoreOption{nil, {operator.EndSessions()}} {
			s.ok(c.Delete(s.ctx, "db"))
			index, err := o.Restore(s.ctx, id, bytes.NewReader(backup.Bytes()), int64(backup.Len()), opts...)
			s.ok(err)
			seen, err := c.Get(s.ctx, "db")
			s.ok(err)
			if held := int64(1 - len(opts)); index <= at || seen.Permits != 3 || seen.Held != held {
				t.Errorf("restored at %d, of a backup at %d, with %d of %d held, not %d", index, at, seen.Held, seen.Permits, held)
			}
		}
		_, err = o.Restore(s.ctx, id, bytes.NewReader(backup.Bytes()), int64(backup.Len()-1))
		s.is(err, operator.ErrBackupRefused)
		if errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		_, err = o.Restore(s.ctx, id, bytes.NewReader(nil), 0)
		s.is(err, operator.ErrBackupRefused)
	})
}

// TestRestoreIsSentOnce: a restore whose reply is lost is not repeated; one that never left
// is, until ctx ends.
func TestRestoreIsSentOnce(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		for _, c := range []struct {
			fault   fault
			once    bool
			unknown bool
		}{
			{fault{lose: true}, true, true}, {fault{status: 504, code: "outcome-unknown"}, true, false}, {fault{refused: true}, false, false},
			{fault{status: 409, code: "not-leader"}, false, false}, {fault{status: 429, code: "limit-reached"}, true, false},
		} {
			b.net.follow(always(c.fault))
			_, err := operator.New(b.c).Restore(b.within(5*time.Second), "c0", bytes.NewReader([]byte("x")), 1)
			sent := len(b.net.requests())
			if err == nil || (sent == 1) != c.once || c.unknown && !errors.Is(err, client.ErrOutcomeUnknown) || !c.once && errors.Is(err, client.ErrOutcomeUnknown) {
				b.Errorf("%+v: sent %d times, %v", c.fault, sent, err)
			}
			if !c.once {
				b.is(err, context.DeadlineExceeded, client.ErrUnreachable)
			}
		}
	})
}

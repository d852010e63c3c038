package cluster

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/certs"
)

// withCertificates gives each node of the test a certificate of one authority.
func withCertificates(c *lifeNodes) {
	dir := c.t.TempDir()
	_, err := certs.MakeAuthority(dir, false)
	c.must(err)
	c.setups = append(c.setups, func(config *Config) {
		files, err := certs.MakeNode(dir, config.NodeID, nil, true)
		c.must(err)
		source, err := certs.Open(certs.Config{Pair: files, CA: filepath.Join(dir, "ca.pem")})
		c.must(err)
		config.PeerTLS = source.NodeTLS()
	})
}

// TestCertifiedNodesMustBeMembers: a node with a certificate of the cluster's authority
// that is neither a member nor listed gets no stream, until it is added; and none once
// it was removed, of which it learns. A member that missed its coming follows it as a
// leader, and one that has lost its folder comes back under it.
func TestCertifiedNodesMustBeMembers(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		withCertificates(c)
		c.begin(c.all...)
		c.ready(c.all...)
		first := append([]*testNode(nil), c.all...)
		n4 := joiner(c, "n4")
		c.begin(n4)
		time.Sleep(6 * time.Second) // virtual
		if refused := refusedCount(t, c.leader().joining.Port(), "stranger"); refused == 0 || n4.raft() != nil {
			t.Errorf("the leader has refused %v streams of a stranger", refused)
		}
		absent := c.follower()
		c.kill(absent) // it misses that n4 comes in
		c.must(c.leader().AddMember(t.Context(), "n4", "n4:8711"))
		c.ready(n4)
		c.must(c.leader().TransferLeadership(t.Context(), "n4"))
		c.revive(absent)
		c.ready(absent)
		for _, n := range first { // it lists the first three, and n4 leads
			if n == absent {
				continue
			}
			for _, listed := range first {
				c.peers = append(c.peers, Peer{ID: listed.id, Address: listed.id + ":8711"})
			}
			c.wipe(n)
			c.begin(n)
			c.ready(n)
			c.peers = nil
			break
		}
		if c.leader() != n4 {
			t.Errorf("%s leads", c.leader().id)
		}
		c.must(n4.RemoveMember(t.Context(), "n4"))
		c.voting([]string{"n1", "n2", "n3"}, first...)
		strangers := func() (count float64) {
			for _, n := range first {
				count += refusedCount(t, n.joining.Port(), "stranger")
			}
			return count
		}
		c.until("n4 knows", func() bool { return !c.check(n4, "member").OK })
		before := strangers()
		c.kill(n4)
		c.revive(n4)
		c.until("n4 is refused", func() bool { return strangers() > before })
		if n4.Ready() {
			t.Error("the removed node is ready")
		}
	})
}

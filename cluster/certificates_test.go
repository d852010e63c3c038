package cluster

import (
	"path/filepath"

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

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/internal/certs"
)

func addCertificates(flags *pflag.FlagSet, c *config) {
	flags.StringVar(&c.peerCerts.Cert, "peer-cert", "", "PEM file with this node's certificate for TLS with its peers; its common name is the node's id")
	flags.StringVar(&c.peerCerts.Key, "peer-key", "", "PEM file with the key of --peer-cert")
	flags.StringVar(&c.peerCerts.CA, "peer-ca", "", "PEM file with the authorities of the peers' certificates")
	flags.BoolVar(&c.insecurePeers, "insecure-peers", false,
		"let the peer port be reachable beyond this machine without TLS: whoever reaches it can change the state. Together with --peer-cert: take plain peers too")
	flags.StringVar(&c.apiCerts.Cert, "tls-cert", "", "PEM file with the certificate for HTTPS, which may also be the --peer-cert; without it: plain HTTP")
	flags.StringVar(&c.apiCerts.Key, "tls-key", "", "PEM file with the key of --tls-cert")
	flags.StringVar(&c.apiCerts.CA, "tls-client-ca", "", "PEM file with the authorities of clients' certificates, which clients may show in HTTPS")
	flags.BoolVar(&c.insecureHTTP, "insecure-http", false,
		"let the API be reachable beyond this machine without the flags that protect it: whoever reaches it can do everything")
}

// checkCertificates refuses an incomplete set of files, for example a certificate without its key.
func checkCertificates(peer, api certs.Config) error {
	if (peer.Cert == "") != (peer.Key == "") || (peer.Cert == "") != (peer.CA == "") {
		return errors.New("--peer-cert, --peer-key and --peer-ca belong together: give all of them, or leave all out")
	}
	if (api.Cert == "") != (api.Key == "") {
		return errors.New("--tls-cert and --tls-key belong together: give both, or leave both out")
	}
	if api.CA != "" && api.Cert == "" {
		return errors.New("--tls-client-ca: clients can show certificates in HTTPS only: give --tls-cert too")
	}
	return nil
}

// certificates are the certificates of a node. They are read again at SIGHUP and when their files change.
type certificates struct {
	peer, api *certs.Source // nil without certificates
	ends      []func()      // each stops reading, and blocks until that has ended
}

func openCertificates(c config, log hclog.Logger) (*certificates, error) {
	s := &certificates{}
	var err error
	if s.peer, s.api, err = c.openSources(); err != nil {
		return nil, err
	}
	if c.insecurePeers && s.peer != nil {
		log.Warn("peers without a certificate are accepted: remove --insecure-peers once all nodes have one")
	}
	for use, source := range s.sources() {
		if time.Now().After(source.Ends()) {
			log.Error("the certificate has ended: no client accepts it", "use", use, "ended", source.Ends().Format(time.RFC3339))
		}
		s.ends = append(s.ends, follow(source, use, log))
	}
	return s, nil
}

// openSources reads the certificates for peers and for HTTPS. They are nil without files.
func (c config) openSources() (peer, api *certs.Source, err error) {
	c.peerCerts.Node, c.apiCerts.Server = c.nodeID, true
	if peer, err = openSource("--peer-cert", c.peerCerts); err == nil {
		api, err = openSource("--tls-cert", c.apiCerts)
	}
	return peer, api, err
}

func openSource(flag string, files certs.Config) (*certs.Source, error) {
	if files.Cert == "" {
		return nil, nil
	}
	source, err := certs.Open(files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return source, nil
}

// sources returns the certificates of the node, by use: "peer" and "api".
func (s *certificates) sources() map[string]*certs.Source {
	found := map[string]*certs.Source{"peer": s.peer, "api": s.api}
	maps.DeleteFunc(found, func(_ string, source *certs.Source) bool { return source == nil })
	return found
}

// follow reads a certificate again at SIGHUP and when its files change, until end is called.
func follow(source *certs.Source, use string, log hclog.Logger) (end func()) {
	return atHangups(func(ctx context.Context, hangups <-chan os.Signal) {
		source.Watch(ctx, hangups, func(err error) {
			if err != nil {
				log.Error("the certificate can't be read again: the one before stays in use", "use", use, "error", err)
				return
			}
			log.Info("the certificate was read again", "use", use, "ends", source.Ends().Format(time.RFC3339))
		})
	})
}

func (s *certificates) end() {
	for _, end := range s.ends {
		end()
	}
}

// peerTLS returns the TLS settings for peers, or nil without TLS.
func (s *certificates) peerTLS() *tls.Config {
	if s.peer == nil {
		return nil
	}
	return s.peer.NodeTLS()
}

// apiTLS returns the settings of HTTPS, or nil for plain HTTP.
func (s *certificates) apiTLS() *tls.Config {
	if s.api == nil {
		return nil
	}
	return s.api.ServerTLS()
}

func (s *certificates) collectors() (metrics []prometheus.Collector) {
	for use, source := range map[string]*certs.Source{"peer": s.peer, "api": s.api} {
		metrics = append(metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "signalbox_certificate_days_left",
			Help:        "Days until this node's certificate ends, below 0 after it, +Inf without one.",
			ConstLabels: prometheus.Labels{"use": use},
		}, func() float64 {
			if source == nil {
				return math.Inf(1)
			}
			return time.Until(source.Ends()).Hours() / 24
		}))
	}
	return metrics
}

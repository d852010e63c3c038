package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/internal/certs"
)

// addCertificates adds the flags of a node's certificates.
func addCertificates(flags *pflag.FlagSet, c *config) {
	flags.StringVar(&c.peerCerts.Cert, "peer-cert", "", "PEM file with this node's certificate for TLS with its peers; its common name is the node's id")
	flags.StringVar(&c.peerCerts.Key, "peer-key", "", "PEM file with the key of --peer-cert")
	flags.StringVar(&c.peerCerts.CA, "peer-ca", "", "PEM file with the authorities of the peers' certificates")
	flags.BoolVar(&c.insecurePeers, "insecure-peers", false,
		"let the peer port be reachable beyond this machine without TLS: whoever reaches it can change the state. Beside --peer-cert: take plain peers too")
}

// checkCertificates wants all of a node's files, or none.
func checkCertificates(files certs.Config) error {
	given := 0
	for _, path := range []string{files.Cert, files.Key, files.CA} {
		if path != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return errors.New("--peer-cert, --peer-key and --peer-ca belong together: give all of them, or none")
	}
	return nil
}

// certificates is the certificates of a node, which are read again at SIGHUP and when
// their files change.
type certificates struct {
	peer *certs.Source // nil without
	end  func()        // stops reading; blocks until that has ended
}

// openCertificates reads the files that the flags name.
func openCertificates(c config, log hclog.Logger) (*certificates, error) {
	if c.peerCerts.Cert == "" {
		return &certificates{end: func() {}}, nil
	}
	files := c.peerCerts
	files.Node = c.nodeID
	source, err := certs.Open(files)
	if err != nil {
		return nil, fmt.Errorf("--peer-cert: %w", err)
	}
	if c.insecurePeers {
		log.Warn("peers without a certificate are accepted: remove --insecure-peers once all nodes have one")
	}
	return &certificates{source, follow(source, log)}, nil
}

// follow reads a source again until end is called.
func follow(source *certs.Source, log hclog.Logger) (end func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		source.Watch(ctx, hangups, func(err error) {
			if err != nil {
				log.Error("the certificate for peers can't be read again: the one before stays in use", "error", err)
				return
			}
			log.Info("the certificate for peers was read again", "ends", source.Ends().Format(time.RFC3339))
		})
	})
	return func() { // without signal.Stop: a SIGHUP from here on must not kill a node that stops
		cancel()
		running.Wait()
	}
}

// peerTLS returns the settings of TLS with peers, nil for none.
func (s *certificates) peerTLS() *tls.Config {
	if s.peer == nil {
		return nil
	}
	return s.peer.NodeTLS()
}

// collector returns the metric of the certificates.
func (s *certificates) collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "signalbox_certificate_days_left",
		Help:        "Days until this node's certificate ends, below 0 after it, +Inf without one.",
		ConstLabels: prometheus.Labels{"use": "peer"},
	}, func() float64 {
		if s.peer == nil {
			return math.Inf(1)
		}
		return time.Until(s.peer.Ends()).Hours() / 24
	})
}

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// watchEvery is how often Watch reads the files.
const watchEvery = 5 * time.Second

// Config names the files of a [Source].
type Config struct {
	Pair        // may be empty if this side shows no certificate
	CA   string // a bundle of the trusted authorities; may be empty
	Node string // the certificate must be valid now, and belong to this node id; "": not checked

	Server bool // check that the certificate is a server's, expired or not
}

// Source is a certificate and the trusted authorities, as of the last successful [Source.Reload].
type Source struct {
	config Config

	reloading sync.Mutex
	current   atomic.Pointer[material]
}

// material is the content of a source's files.
type material struct {
	files [3][]byte // cert, key, bundle
	pair  tls.Certificate
	roots *x509.CertPool
	ends  time.Time // when the certificate expires; zero without one
}

// Open returns the source of the files, which it reads.
func Open(config Config) (*Source, error) {
	s := &Source{config: config}
	_, err := s.Reload()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the files again, and reports whether they have changed. If a file is missing or damaged, the certificate
// and the key don't match, or the certificate is not valid for Config.Node, it returns the error, and the source stays
// as it is.
func (s *Source) Reload() (changed bool, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	var next material
	for i, path := range []string{s.config.Cert, s.config.Key, s.config.CA} {
		if path == "" {
			continue
		}
		if next.files[i], err = os.ReadFile(path); err != nil {
			return false, err
		}
	}
	if last := s.current.Load(); last != nil && bytes.Equal(last.files[0], next.files[0]) &&
		bytes.Equal(last.files[1], next.files[1]) && bytes.Equal(last.files[2], next.files[2]) {
		return false, nil
	}
	if s.config.Cert != "" {
		if next.pair, err = parsePair(s.config.Pair, next.files[0], next.files[1]); err != nil {
			return false, err
		}
		next.ends = next.pair.Leaf.NotAfter
	}
	if s.config.CA != "" {
		if next.roots, err = parseBundle(s.config.CA, next.files[2]); err != nil {
			return false, err
		}
	}
	if s.config.Node != "" {
		if err := next.checkNode(s.config.Node); err != nil {
			return false, fmt.Errorf("%s: %w", s.config.Cert, err)
		}
	}
	if s.config.Server {
		if err := next.checkServer(); err != nil {
			return false, fmt.Errorf("%s: %w", s.config.Cert, err)
		}
	}
	s.current.Store(&next)
	return true, nil
}

// Watch reloads the files every 5 s, and when a signal comes from now, until ctx ends. It calls reloaded with nil when
// they have changed or can be used again, and with the error when they can't be used. After a signal it reports every
// error. Otherwise it reports an error once, when a second reload in a row has failed with it, since the files may be
// in the middle of a replacement.
func (s *Source) Watch(ctx context.Context, now <-chan os.Signal, reloaded func(error)) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	found, reported := "", "" // the error of the last reload, and the last error that was reported
	for {
		signalled := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			signalled = true // an error is reported at once
		case <-ticker.C:
		}
		changed, err := s.Reload()
		switch {
		case err == nil:
			if changed || reported != "" {
				reloaded(nil)
			}
			found, reported = "", ""
		case signalled || err.Error() == found && found != reported:
			found, reported = err.Error(), err.Error()
			reloaded(err)
		default:
			found = err.Error()
		}
	}
}

// Ends returns when the certificate expires; zero without a certificate.
func (s *Source) Ends() time.Time { return s.current.Load().ends }

// Certificate returns the certificate.
func (s *Source) Certificate() *tls.Certificate { return &s.current.Load().pair }

// Authorities returns the trusted authorities; nil stands for the system's authorities.
func (s *Source) Authorities() *x509.CertPool { return s.current.Load().roots }

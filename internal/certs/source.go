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
	Pair        // may be empty, for a side that shows no certificate
	CA   string // a bundle of the authorities that are trusted; may be empty
	Node string // the id of the node whose certificate it must be, good now; "" for any

	Server bool // it must be a certificate for a server; it may have ended
}

// Source is a certificate and the authorities that it goes with, as they were in their
// files at the last [Source.Reload] that found them whole.
type Source struct {
	config Config

	reloading sync.Mutex
	current   atomic.Pointer[material]
}

// material is what the files of a source hold.
type material struct {
	files [3][]byte // cert, key, bundle
	pair  tls.Certificate
	roots *x509.CertPool
	ends  time.Time // of the certificate; zero without one
}

// Open reads the files.
func Open(config Config) (*Source, error) {
	s := &Source{config: config}
	_, err := s.Reload()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the files again, and reports whether they have changed. If they are not
// whole, don't match, or are not good for Config.Node, it returns the reason, and the
// source stays as it is.
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

// Watch reloads the files every 5 s, and when now says so, until ctx ends. It calls
// reloaded when they have changed, with nil, and when they can't be used, with the
// reason: not for files that are whole at the next look, and once for each reason.
func (s *Source) Watch(ctx context.Context, now <-chan os.Signal, reloaded func(error)) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	found, reported := "", "" // the last look's reason, and the one that was reported
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			asked = true // and gets a reply
		case <-ticker.C:
		}
		changed, err := s.Reload()
		switch {
		case err == nil:
			if changed || reported != "" {
				reloaded(nil)
			}
			found, reported = "", ""
		case asked || err.Error() == found && found != reported:
			found, reported = err.Error(), err.Error()
			reloaded(err)
		default:
			found = err.Error()
		}
	}
}

// Ends returns when the certificate ends; zero without one.
func (s *Source) Ends() time.Time { return s.current.Load().ends }

// Certificate returns the certificate.
func (s *Source) Certificate() *tls.Certificate { return &s.current.Load().pair }

// Authorities returns the authorities that are trusted; nil stands for the system's.
func (s *Source) Authorities() *x509.CertPool { return s.current.Load().roots }

package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// followed is a value that was read from files, and is read again after they change.
type followed[T any] struct {
	paths []string
	read  func() (T, error)
	warn  func(error) // called if changed files can't be read; may be nil

	mu    sync.Mutex
	seen  []os.FileInfo // of the paths, from before the latest read; nil: no such file
	value T             // the latest value that could be read
}

func follow[T any](read func() (T, error), warn func(error), paths ...string) (*followed[T], error) {
	f := &followed[T]{paths: paths, read: read, warn: warn, seen: statAll(paths)}
	var err error
	f.value, err = read()
	return f, err
}

// get returns the value that the files have now. With force it reads them even if they seem unchanged, because a file
// may be written twice within one tick of the file system's clock.
func (f *followed[T]) get(force bool) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := statAll(f.paths) // before the read, so that no change after it is missed
	if !force && slices.EqualFunc(f.seen, now, unchanged) {
		return f.value
	}
	value, err := f.read()
	switch {
	case err == nil:
		f.value = value
	case f.warn != nil && !slices.EqualFunc(f.seen, now, unchanged):
		f.warn(fmt.Errorf("%w; the values from before stay in use", err))
	}
	f.seen = now
	return f.value
}

func statAll(paths []string) (seen []os.FileInfo) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		seen = append(seen, info)
	}
	return seen
}

func unchanged(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readToken reads a file that contains a token, and removes the space around it.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &FieldError{"TokenFile", fmt.Errorf("the token can't be read: %w", err)}
	}
	token := strings.TrimSpace(string(text))
	if err := checkToken(token); err != nil {
		return "", &FieldError{"TokenFile", fmt.Errorf("%s: %w", path, errors.Unwrap(err))}
	}
	return token, nil
}

// checkToken returns an error for a text that can't be a token in a header.
func checkToken(token string) error {
	if token == "" {
		return &FieldError{"Token", errors.New("there is no token")}
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return &FieldError{"Token", errors.New("a token has no spaces, and no characters but those of ASCII")}
	}
	return nil
}

// readTLS reads the authorities and the certificate, if their files are set.
func readTLS(cfg *Config) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CA != "" {
		bundle, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, &FieldError{"CA", fmt.Errorf("the authorities can't be read: %w", err)}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, &FieldError{"CA", fmt.Errorf("%s has no certificate in PEM", cfg.CA)}
		}
	}
	if cfg.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, &FieldError{"Cert", fmt.Errorf("the certificate of the client can't be read: %w", err)}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

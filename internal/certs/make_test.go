package certs

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leafOf returns the certificate in a pair of files.
func leafOf(t *testing.T, files Pair) *x509.Certificate {
	t.Helper()
	pair, err := readPair(files)
	must(t, err)
	return pair.Leaf
}

func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	ca, err := MakeAuthority(dir, false)
	must(t, err)
	node, err := MakeNode(dir, "n1", []string{"signalbox.example", "10.0.0.7"}, false)
	must(t, err)
	client, err := MakeClient(dir, "ci", false)
	must(t, err)

	for _, files := range []Pair{ca, node, client} {
		for _, path := range []string{files.Cert, files.Key} {
			info, err := os.Stat(path)
			must(t, err)
			if info.Mode() != 0o600 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(leafOf(t, ca))
	for _, host := range []string{"n1", "localhost", "127.0.0.1", "::1", "signalbox.example", "10.0.0.7"} {
		if _, err := leafOf(t, node).Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("HTTPS to %s: %v", host, err)
		}
	}
	if _, err := leafOf(t, client).Verify(x509.VerifyOptions{Roots: roots}); err == nil {
		t.Error("a client's certificate is good for a server")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// TestNamesAreChecked: what a certificate or a file can't hold is refused, and no file
// is written.
func TestNamesAreChecked(t *testing.T) {
	dir := t.TempDir()
	_, err := MakeAuthority(dir, false)
	must(t, err)
	before, err := os.ReadDir(dir)
	must(t, err)
	for _, id := range []string{"", "../n1", "a b", ".n", "n1-key", "n\x00", strings.Repeat("n", 65)} {
		if _, err := MakeNode(dir, id, nil, false); err == nil {
			t.Errorf("a node's certificate for %q", id)
		}
		if _, err := MakeClient(dir, id, false); err == nil {
			t.Errorf("a client's certificate for %q", id)
		}
	}
	for _, host := range []string{"", "a b", "-a", "http://a", "a:1"} {
		if _, err := MakeNode(dir, "n1", []string{host}, false); err == nil {
			t.Errorf("a certificate for the host %q", host)
		}
	}
	if _, err := MakeNode(t.TempDir(), "n1", nil, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
	after, err := os.ReadDir(dir)
	must(t, err)
	if len(after) != len(before) {
		t.Errorf("files %v, before %v", after, before)
	}
}

func TestFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	makers := map[string]func(overwrite bool) (Pair, error){
		"authority": func(overwrite bool) (Pair, error) { return MakeAuthority(dir, overwrite) },
		"node":      func(overwrite bool) (Pair, error) { return MakeNode(dir, "n1", nil, overwrite) },
		"client":    func(overwrite bool) (Pair, error) { return MakeClient(dir, "c", overwrite) },
	}
	for _, kind := range []string{"authority", "node", "client"} {
		files, err := makers[kind](false)
		must(t, err)
		before := leafOf(t, files)
		if _, err := makers[kind](false); !errors.Is(err, fs.ErrExist) || !before.Equal(leafOf(t, files)) {
			t.Errorf("%s, made again: %v", kind, err)
		}
		must(t, os.Remove(files.Cert)) // a lone key is kept as well
		if _, err := makers[kind](false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s, beside a lone key: %v", kind, err)
		}
		_, err = makers[kind](true)
		must(t, err)
		if before.Equal(leafOf(t, files)) {
			t.Errorf("%s is the same after an overwrite", kind)
		}
	}
}

// TestLifetimes: no certificate outlives its authority, and an authority that has ended
// issues no certificate.
func TestLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca, err := MakeAuthority(dir, false)
		must(t, err)
		node, err := MakeNode(dir, "n1", nil, false)
		must(t, err)
		if left := time.Until(leafOf(t, node).NotAfter); left > issuedLifetime || left < issuedLifetime-time.Minute {
			t.Errorf("a node's certificate lasts %v", left)
		}
		time.Sleep(authorityLifetime - 24*time.Hour) // virtual
		node, err = MakeNode(dir, "n2", nil, false)
		must(t, err)
		if !leafOf(t, node).NotAfter.Equal(leafOf(t, ca).NotAfter) {
			t.Errorf("a node's certificate ends at %v, its authority's at %v", leafOf(t, node).NotAfter, leafOf(t, ca).NotAfter)
		}
		time.Sleep(25 * time.Hour) // virtual
		if _, err = MakeNode(dir, "n3", nil, false); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("by an authority that has ended: %v", err)
		}
	})
}

func TestSerialNumbersDiffer(t *testing.T) {
	var seen []string
	for range 8 {
		n, err := drawSerial()
		must(t, err)
		if n.Sign() <= 0 || n.BitLen() > 127 || slices.Contains(seen, n.String()) {
			t.Errorf("number %v after %v", n, seen)
		}
		seen = append(seen, n.String())
	}
}

// TestNodeLasts: a certificate is kept as long as it needs no renewal within a month,
// its authority is the folder's, and it names all hosts.
func TestNodeLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := authority(t), authority(t)
		for _, folder := range []string{dir, other} {
			_, err := MakeNode(folder, "n1", []string{"a.example"}, false)
			must(t, err)
		}
		for _, c := range []struct {
			id    string
			hosts []string
			want  bool
		}{
			{"n1", nil, true},
			{"n1", []string{"a.example", "localhost", "n1"}, true},
			{"n1", []string{"a.example", "b.example"}, false},
			{"n2", nil, false},
		} {
			if got := NodeLasts(dir, c.id, c.hosts); got != c.want {
				t.Errorf("%s for %q: %v", c.id, c.hosts, got)
			}
		}
		time.Sleep(issuedLifetime - renewed - time.Hour) // virtual
		if !NodeLasts(dir, "n1", nil) {
			t.Error("it is renewed too early")
		}
		time.Sleep(2 * time.Hour) // virtual
		if NodeLasts(dir, "n1", nil) {
			t.Error("it is kept too long")
		}
		_, err := MakeNode(dir, "n1", nil, true)
		must(t, err)
		foreign, err := os.ReadFile(filepath.Join(other, "ca.pem"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), foreign, 0o600))
		if NodeLasts(dir, "n1", nil) {
			t.Error("it is kept with another authority")
		}
	})
}

package certs

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOpenRefuses(t *testing.T) {
	dir := authority(t)
	n1, err := MakeNode(dir, "n1", nil, false)
	must(t, err)
	n2, err := MakeNode(dir, "n2", nil, false)
	must(t, err)
	ca := filepath.Join(dir, "ca.pem")
	empty := filepath.Join(dir, "empty.pem")
	must(t, os.WriteFile(empty, nil, 0o600))
	whole, err := os.ReadFile(ca)
	must(t, err)
	cut, comment := filepath.Join(dir, "cut.pem"), filepath.Join(dir, "comment.pem")
	must(t, os.WriteFile(cut, append(whole, whole[:len(whole)/2]...), 0o600))
	must(t, os.WriteFile(comment, append([]byte("subject=ours\n"), whole...), 0o600))
	if _, err := Open(Config{Pair: n1, CA: comment}); err != nil {
		t.Errorf("a bundle with a comment: %v", err)
	}
	for name, config := range map[string]Config{
		"no certificate":             {Pair: Pair{filepath.Join(dir, "n9.pem"), n1.Key}, CA: ca},
		"another's key":              {Pair: Pair{n1.Cert, n2.Key}, CA: ca},
		"no authority":               {Pair: n1, CA: filepath.Join(dir, "cb.pem")},
		"a bundle that is cut":       {Pair: n1, CA: cut},
		"a node's in place of it":    {Pair: n1, CA: n1.Cert},
		"an empty bundle":            {Pair: n1, CA: empty},
		"a key in place of a bundle": {Pair: n1, CA: n1.Key},
	} {
		if _, err := Open(config); err == nil {
			t.Errorf("opened with %s", name)
		}
	}
}

// TestWatch: changed files are read within 5 s; files that can't be used are reported
// once, and the source goes on with what it has.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := authority(t)
		s := node(t, dir, "n1")
		reports := make(chan error, 8)
		hangups := make(chan os.Signal)
		ctx, cancel := context.WithCancel(t.Context())
		go s.Watch(ctx, hangups, func(err error) { reports <- err })
		next := func() error {
			t.Helper()
			time.Sleep(watchEvery) // virtual
			synctest.Wait()
			select {
			case err := <-reports:
				return err
			default:
				t.Fatal("no report within 5 s")
				return nil
			}
		}
		first := s.Ends()
		time.Sleep(time.Hour + time.Second) // virtual: between two looks
		_, err := MakeNode(dir, "n1", nil, true)
		must(t, err)
		must(t, next())
		if !s.Ends().After(first) {
			t.Errorf("ends at %v, at first %v", s.Ends(), first)
		}
		whole, err := os.ReadFile(s.config.Cert)
		must(t, err)
		must(t, os.WriteFile(s.config.Cert, whole[:len(whole)/2], 0o600))
		time.Sleep(watchEvery) // virtual
		synctest.Wait()
		if len(reports) > 0 {
			t.Errorf("reported at the first look: %v", <-reports)
		}
		if next() == nil {
			t.Error("half a certificate was read")
		}
		time.Sleep(10 * watchEvery) // virtual
		synctest.Wait()
		if len(reports) > 0 {
			t.Errorf("reported again: %v", <-reports)
		}
		hangups <- syscall.SIGHUP
		synctest.Wait()
		if len(reports) != 1 || <-reports == nil {
			t.Error("no report of half a certificate for the one who asks")
		}
		if s.Certificate().Leaf == nil {
			t.Error("the certificate is gone")
		}
		must(t, os.WriteFile(s.config.Cert, whole, 0o600))
		must(t, next())
		cancel()
		synctest.Wait()
	})
}

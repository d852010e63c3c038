package damage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/signalbox/signalbox/test/storetest"
)

func TestErrorsNameWhatTheyAreAbout(t *testing.T) {
	cause := errors.New("cause")
	for kind, err := range map[error]error{
		ErrDamaged: &Error{Folder: "/data", File: "raft.db", Err: cause},
		ErrFull:    &FullError{File: "/data/raft.db", Err: cause},
	} {
		wrapped := fmt.Errorf("opening: %w", err)
		storetest.WantError(t, wrapped, kind, "/data")
		if !errors.Is(wrapped, cause) {
			t.Errorf("%v hides its cause", wrapped)
		}
	}
	if message := (&Error{File: "memory", Detail: "x"}).Error(); strings.Contains(message, "mv ") {
		t.Errorf("without a folder, there is none to move away: %q", message)
	}
}

// TestFirstDamageIsFinal: it is reported once, and is the error of all calls after it.
func TestFirstDamageIsFinal(t *testing.T) {
	var reported []error
	g := NewGuard("/data", func(err error) { reported = append(reported, err) })
	first := g.Run("raft.db", 7, func() error { panic("page 7: unexpected") })
	storetest.WantError(t, first, ErrDamaged, "/data/raft.db at index 7", "page 7: unexpected")
	storetest.WantError(t, g.Damaged("raft.db", 8, "another", nil), ErrDamaged, "another")
	again := g.Run("raft.db", 0, func() error { t.Error("it ran"); return nil })
	if again != first || g.Refusal() != first || g.Found() != first || len(reported) != 1 || reported[0] != first {
		t.Errorf("then %v, kept %v, reported %v; want once %v", again, g.Found(), reported, first)
	}
}

// TestFailedWriteOtherThanFullIsFinal: after a failed sync it is unknown what the disk
// holds.
func TestFailedWriteOtherThanFullIsFinal(t *testing.T) {
	g := NewGuard("/data", nil)
	for _, passing := range []error{
		nil, ErrClosed, &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC},
		fmt.Errorf("file sync error: %s", syscall.ENOSPC), // how bbolt says it when it grows a file
		syscall.EDQUOT,
	} {
		err := g.WriteFailed("raft.db", passing)
		if full := passing != nil && passing != ErrClosed; errors.Is(err, ErrFull) != full || !full && err != passing || g.Refusal() != nil {
			t.Errorf("%v became %v", passing, err)
		}
	}
	storetest.WantError(t, g.WriteFailed("raft.db", syscall.EIO), ErrDamaged, "raft.db", "input/output error")
	storetest.WantError(t, g.Refusal(), ErrDamaged)
}

func TestClosedGuardRefuses(t *testing.T) {
	g, closed := NewGuard("/data", nil), errors.New("closed")
	storetest.WantError(t, g.Run("raft.db", 0, func() error { return bolterrors.ErrDatabaseNotOpen }), ErrClosed)
	if first, err := g.Close(func() error { return closed }); !first || err != closed {
		t.Errorf("first %t, error %v", first, err)
	}
	if first, err := g.Close(func() error { return closed }); first || err != nil {
		t.Errorf("first %t, error %v", first, err)
	}
	storetest.WantError(t, g.Refusal(), ErrClosed)
}

// TestCloseAfterAPanic: the files may never close, since the panic has left their locks
// held.
func TestCloseAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, release := NewGuard("/data", nil), make(chan struct{})
		storetest.WantError(t, g.Run("raft.db", 0, func() error { panic("unexpected") }), ErrDamaged)
		begun := time.Now()
		first, err := g.Close(func() error { <-release; return nil })
		if took := time.Since(begun); !first || err == nil || took != closeTimeout {
			t.Errorf("first %t, error %v after %v", first, err, took)
		}
		close(release)
	})
}

// TestBoltFilesAreWrittenAgain before bbolt opens them: the last commit may be in the page cache alone.
func TestBoltFilesAreWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db, err := bbolt.Open(path, 0o600, BoltOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	old := time.Unix(1_000_000_000, 0)
	if err = errors.Join(err, os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	file, err := BoltOptions().OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	after, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr, file.Close()); err != nil || info.ModTime().Equal(old) || !bytes.Equal(before, after) {
		t.Errorf("written at %v, the same content %t, error %v", info.ModTime(), bytes.Equal(before, after), err)
	}
}

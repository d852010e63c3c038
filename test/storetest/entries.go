package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// Full is what the system returns on a full disk.
var Full = &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError fails unless err is of the kind, and its message is one line that
// has all the parts.
func WantError(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("the error is %v, want one that is %q", err, kind)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has more than one line: %q", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q doesn't say %q", err, part)
		}
	}
}

// Entries makes log entries from first to last.
func Entries(first, last, term uint64) []*raft.Log {
	var entries []*raft.Log
	for index := first; index <= last; index++ {
		entries = append(entries, &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "command %d of term %d", index, term)})
	}
	return entries
}

// CheckEntries fails unless the log has exactly these entries.
func CheckEntries(t testing.TB, logs raft.LogStore, first, last, term uint64) {
	t.Helper()
	gotFirst, err := logs.FirstIndex()
	gotLast, lastErr := logs.LastIndex()
	if err := errors.Join(err, lastErr); err != nil || gotFirst != first || gotLast != last {
		t.Fatalf("the log has entries %d to %d, error %v; want %d to %d", gotFirst, gotLast, err, first, last)
	}
	for _, want := range Entries(first, last, term) {
		var got raft.Log
		if err := logs.GetLog(want.Index, &got); err != nil {
			t.Fatalf("entry %d: %v", want.Index, err)
		}
		if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("entry %d is %+v, want %+v", want.Index, got, want)
		}
	}
	for _, index := range []uint64{first - 1, last + 1} {
		if err := logs.GetLog(index, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d: error %v, want %v", index, err, raft.ErrLogNotFound)
		}
	}
}

// Configuration is the configuration of a cluster of two.
func Configuration() raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1:8711"}, {ID: "n2", Address: "n2:8711", Suffrage: raft.Nonvoter}}}
}

// NoTransport encodes peers for stores that want that; nothing is sent.
func NoTransport(t testing.TB) raft.Transport {
	_, transport := raft.NewInmemTransport("")
	t.Cleanup(func() { _ = transport.Close() })
	return transport
}

// TakeSnapshot stores a snapshot and returns its id.
func TakeSnapshot(t testing.TB, snapshots raft.SnapshotStore, index, term uint64, content []byte) string {
	t.Helper()
	sink, err := snapshots.Create(1, index, term, Configuration(), 1, NoTransport(t))
	if err != nil {
		t.Fatalf("create a snapshot: %v", err)
	}
	if _, err := io.Copy(sink, bytes.NewReader(content)); err != nil {
		t.Fatalf("write a snapshot: %v", err)
	}
	if err := sink.Close(); err != nil {
		t.Fatalf("close a snapshot: %v", err)
	}
	return sink.ID()
}

// ReadSnapshot opens a snapshot and reads it whole.
func ReadSnapshot(t testing.TB, snapshots raft.SnapshotStore, id string) (*raft.SnapshotMeta, []byte) {
	t.Helper()
	meta, reader, err := snapshots.Open(id)
	if err != nil {
		t.Fatalf("open snapshot %s: %v", id, err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatalf("read snapshot %s: %v", id, err)
	}
	if err := reader.Close(); err != nil {
		t.Fatalf("close the reader of %s: %v", id, err)
	}
	return meta, content
}

// WantListed fails unless these snapshots are listed, each as "term-index".
func WantListed(t testing.TB, snapshots raft.SnapshotStore, want ...string) {
	t.Helper()
	metas, err := snapshots.List()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, meta := range metas {
		found = append(found, fmt.Sprintf("%d-%d", meta.Term, meta.Index))
	}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Fatalf("listed are %v, want %v", found, want)
	}
}

// Pinned fails unless records have the bytes of a golden file, which has a line for each: its
// name, and its bytes in hexadecimal digits. A line may be added, never changed.
func Pinned(t testing.TB, golden string, records map[string][]byte) {
	t.Helper()
	content, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var now strings.Builder
	for _, name := range slices.Sorted(maps.Keys(records)) {
		fmt.Fprintf(&now, "%s %x\n", name, records[name])
	}
	if now.String() != string(content) {
		t.Errorf("%s has\n%s, and the records are\n%s", golden, content, now.String())
	}
}

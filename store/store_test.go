package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// openStore opens a folder for node n1 and closes it with the test.
func openStore(t testing.TB, folder string, with ...func(*Options)) *Store {
	t.Helper()
	o := Options{Folder: folder, NodeID: "n1"}
	for _, change := range with {
		change(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatalf("open %s: %v", folder, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", folder, err)
		}
	})
	return s
}

// closeStore closes a store now.
func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// entries makes log entries from first to last.
func entries(first, last, term uint64) []*raft.Log {
	var made []*raft.Log
	for index := first; index <= last; index++ {
		made = append(made, &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "command %d of term %d", index, term)})
	}
	return made
}

// storeEntries stores log entries from first to last.
func storeEntries(t testing.TB, s *Store, first, last, term uint64) {
	t.Helper()
	if err := s.Logs().StoreLogs(entries(first, last, term)); err != nil {
		t.Fatalf("store entries %d to %d: %v", first, last, err)
	}
}

// takeSnapshot stores a snapshot and returns its id.
func takeSnapshot(t testing.TB, snapshots raft.SnapshotStore, index, term uint64, content []byte) string {
	t.Helper()
	sink, err := snapshots.Create(1, index, term, someConfiguration(), 1, noTransport(t))
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

// noTransport encodes peers for stores that want that; nothing is sent.
func noTransport(t testing.TB) raft.Transport {
	_, transport := raft.NewInmemTransport("")
	t.Cleanup(func() { _ = transport.Close() })
	return transport
}

func someConfiguration() raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1:8711"}, {ID: "n2", Address: "n2:8711", Suffrage: raft.Nonvoter}}}
}

// readSnapshot opens a snapshot and reads it whole.
func readSnapshot(t testing.TB, snapshots raft.SnapshotStore, id string) (*raft.SnapshotMeta, []byte) {
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

// wantError fails unless err is of the kind, and its message is one line that
// has all the parts.
func wantError(t testing.TB, err, kind error, parts ...string) {
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

func TestWhatIsStoredIsThereAfterReopening(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "with", "its", "parents")
	s := openStore(t, folder)
	if !s.Empty() {
		t.Error("a new folder isn't empty")
	}
	if s.Path() != folder || s.NodeID() != "n1" || s.ClusterID() != "" {
		t.Errorf("path %q, node %q, cluster %q", s.Path(), s.NodeID(), s.ClusterID())
	}
	storeEntries(t, s, 1, 300, 2)
	for _, step := range []error{
		s.Stable().SetUint64([]byte("CurrentTerm"), 2),
		s.Stable().SetUint64([]byte("LastVoteTerm"), 2),
		s.Stable().Set([]byte("LastVoteCand"), []byte("n2:8711")),
		s.SetClusterID("c1"),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	content := bytes.Repeat([]byte("state"), 100_000)
	id := takeSnapshot(t, s.Snapshots(), 250, 2, content)
	closeStore(t, s)

	s = openStore(t, folder, func(o *Options) { o.ClusterID = "c1" })
	if s.Empty() || s.ClusterID() != "c1" {
		t.Errorf("empty %t, cluster %q", s.Empty(), s.ClusterID())
	}
	checkEntries(t, s.Logs(), 1, 300, 2)
	term, err := s.Stable().GetUint64([]byte("CurrentTerm"))
	voteTerm, voteErr := s.Stable().GetUint64([]byte("LastVoteTerm"))
	candidate, candidateErr := s.Stable().Get([]byte("LastVoteCand"))
	if err := errors.Join(err, voteErr, candidateErr); err != nil || term != 2 || voteTerm != 2 || string(candidate) != "n2:8711" {
		t.Errorf("term %d, vote %d for %q, error %v", term, voteTerm, candidate, err)
	}
	meta, read := readSnapshot(t, s.Snapshots(), id)
	if !bytes.Equal(read, content) || meta.Index != 250 || meta.Term != 2 || meta.Size != int64(len(content)) ||
		!slices.Equal(meta.Configuration.Servers, someConfiguration().Servers) {
		t.Errorf("the snapshot has %d bytes and %+v", len(read), meta)
	}
}

// checkEntries fails unless the log has exactly these entries.
func checkEntries(t testing.TB, logs raft.LogStore, first, last, term uint64) {
	t.Helper()
	gotFirst, err := logs.FirstIndex()
	gotLast, lastErr := logs.LastIndex()
	if err := errors.Join(err, lastErr); err != nil || gotFirst != first || gotLast != last {
		t.Fatalf("the log has entries %d to %d, error %v; want %d to %d", gotFirst, gotLast, err, first, last)
	}
	for _, want := range entries(first, last, term) {
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

func TestEachFirstWriteEndsEmptiness(t *testing.T) {
	writes := map[string]func(*Store) error{
		"an entry": func(s *Store) error { return s.Logs().StoreLog(entries(1, 1, 1)[0]) },
		"a term":   func(s *Store) error { return s.Stable().SetUint64([]byte("CurrentTerm"), 7) },
		"a snapshot": func(s *Store) error {
			sink, err := s.Snapshots().Create(1, 5, 1, someConfiguration(), 1, nil)
			if err != nil {
				return err
			}
			return sink.Close()
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			for _, ephemeral := range []bool{false, true} {
				s := openStore(t, t.TempDir(), func(o *Options) {
					if o.Ephemeral = ephemeral; ephemeral {
						o.Folder = ""
					}
				})
				if !s.Empty() {
					t.Fatal("a new store isn't empty")
				}
				if err := write(s); err != nil {
					t.Fatal(err)
				}
				if s.Empty() {
					t.Error("the store is still empty")
				}
			}
		})
	}
}

func TestTwoStoresDontShareAFolder(t *testing.T) {
	folder := t.TempDir()
	first := openStore(t, folder)
	_, err := Open(Options{Folder: folder, NodeID: "n1"})
	wantError(t, err, ErrLocked, folder, fmt.Sprint("process ", os.Getpid()))
	closeStore(t, first)
	closeStore(t, openStore(t, folder))
}

func TestFolderOfAnotherNodeOrClusterIsRefused(t *testing.T) {
	folder := t.TempDir()
	closeStore(t, openStore(t, folder, func(o *Options) { o.ClusterID = "c1" }))
	_, err := Open(Options{Folder: folder, NodeID: "n2"})
	wantError(t, err, ErrIdentity, folder, `"n1"`, `"n2"`)
	_, err = Open(Options{Folder: folder, NodeID: "n1", ClusterID: "c2"})
	wantError(t, err, ErrIdentity, folder, `"c1"`, `"c2"`)

	s := openStore(t, folder)
	if err := s.SetClusterID("c2"); err != nil || s.ClusterID() != "c2" {
		t.Errorf("an empty store is of cluster %q, error %v: it has promised nothing to another one", s.ClusterID(), err)
	}
	storeEntries(t, s, 1, 1, 1)
	wantError(t, s.SetClusterID("c3"), ErrIdentity, `"c2"`)
	if err := s.SetClusterID("c2"); err != nil {
		t.Errorf("the same cluster id again: %v", err)
	}
}

// contents returns the names, modes, sizes and bytes of all that is in a folder.
func contents(t testing.TB, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var content []byte
		if info.Mode().IsRegular() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(&all, "%s %s %x\n", path, info.Mode(), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestFolderThatIsNotOursIsRefusedAndUntouched(t *testing.T) {
	newer := record{format: knownFormat + 1, node: "n1", complete: true}.encode()
	cases := map[string]struct {
		name, content string
		kind          error
		says          string
	}{
		"someone's file":    {"thesis.txt", "my only copy", ErrForeign, "thesis.txt"},
		"another program's": {recordFile, "some other database, version 3\n", ErrForeign, recordFile},
		"a newer format's":  {recordFile, string(newer), ErrNewerFormat, fmt.Sprint("format ", knownFormat+1)},
		"a damaged record":  {recordFile, recordTitle + "\nformat 1\nnode \"n1\"\ncrc32c 00000000\n", ErrDamaged, recordFile},
		"a lost record":     {witnessFile, "anything", ErrDamaged, recordFile},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, c.name), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			before := contents(t, folder)
			_, err := Open(Options{Folder: folder, NodeID: "n1"})
			wantError(t, err, c.kind, folder, c.says)
			if after := contents(t, folder); after != before {
				t.Errorf("the folder was changed from\n%s\nto\n%s", before, after)
			}
		})
	}
	t.Run("a file in place of the folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Options{Folder: path, NodeID: "n1"})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestFolderWithNothingOfWorthCountsAsEmpty(t *testing.T) {
	folder := t.TempDir()
	for _, name := range harmless {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("left over"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, openStore(t, folder))
}

func TestMissingOrEmptyDataFileIsDamage(t *testing.T) {
	for _, name := range append(slices.Clone(dataFiles), recordFile) {
		for what, spoil := range map[string]func(string) error{"missing": os.Remove, "empty": func(path string) error { return os.Truncate(path, 0) }} {
			t.Run(name+" "+what, func(t *testing.T) {
				folder := t.TempDir()
				closeStore(t, openStore(t, folder))
				if err := spoil(filepath.Join(folder, name)); err != nil {
					t.Fatal(err)
				}
				_, err := Open(Options{Folder: folder, NodeID: "n1"})
				wantError(t, err, ErrDamaged, folder, name, "mv "+folder)
			})
		}
	}
}

// TestCreationSurvivesACrashAtEachStep plays every state that a crash can leave
// while a folder is being filled, by filling it only in part.
func TestCreationSurvivesACrashAtEachStep(t *testing.T) {
	steps := []func(folder string, o Options) error{
		func(folder string, _ Options) error {
			return os.WriteFile(filepath.Join(folder, recordFile+temporarySuffix), []byte("half"), 0o600)
		},
		func(folder string, o Options) error {
			return record{format: knownFormat, node: "an earlier try", journal: noJournal}.write(folder)
		},
		func(folder string, _ Options) error {
			return os.WriteFile(filepath.Join(folder, raftFile), []byte("half of a bolt file"), 0o600)
		},
		func(folder string, o Options) error {
			return errors.Join(os.Remove(filepath.Join(folder, raftFile)), createRaftFile(o))
		},
		func(_ string, o Options) error { return createSnapshotsFile(o) },
		func(_ string, o Options) error { return createWitness(o) },
	}
	for reached := range len(steps) + 1 {
		t.Run(fmt.Sprintf("after step %d", reached), func(t *testing.T) {
			folder := t.TempDir()
			for _, step := range steps[:reached] {
				if err := step(folder, Options{Folder: folder}); err != nil {
					t.Fatal(err)
				}
			}
			s := openStore(t, folder)
			storeEntries(t, s, 1, 3, 1)
			closeStore(t, s)
			checkEntries(t, openStore(t, folder).Logs(), 1, 3, 1)
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"no folder":         {NodeID: "n1"},
		"no node":           {Folder: "x"},
		"control character": {Folder: "x", NodeID: "n\n1"},
		"invalid text":      {Folder: "x", NodeID: "n\xff"},
		"long id":           {Folder: "x", NodeID: strings.Repeat("n", 256)},
		"bad cluster id":    {Folder: "x", NodeID: "n1", ClusterID: "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Open(o); err == nil {
				closeStore(t, s)
				t.Error("it was opened")
			}
		})
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a folder was made")
	}
}

func TestClosedStoreRefusesEverything(t *testing.T) {
	s := openStore(t, t.TempDir())
	storeEntries(t, s, 1, 3, 1)
	id := takeSnapshot(t, s.Snapshots(), 2, 1, []byte("state"))
	sink, err := s.Snapshots().Create(1, 3, 1, someConfiguration(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	closeStore(t, s)
	for name, call := range map[string]func() error{
		"FirstIndex": func() error { _, err := s.Logs().FirstIndex(); return err },
		"LastIndex":  func() error { _, err := s.Logs().LastIndex(); return err },
		"GetLog":     func() error { return s.Logs().GetLog(2, &raft.Log{}) },
		"StoreLogs":  func() error { return s.Logs().StoreLogs(entries(4, 4, 1)) },
		"DeleteRange": func() error {
			return s.Logs().DeleteRange(1, 2)
		},
		"Get":           func() error { _, err := s.Stable().Get([]byte("k")); return err },
		"SetUint64":     func() error { return s.Stable().SetUint64([]byte("k"), 1) },
		"SetUint64 (2)": func() error { return s.Stable().SetUint64([]byte("LastVoteTerm"), 1) },
		"List":          func() error { _, err := s.Snapshots().List(); return err },
		"Open":          func() error { _, _, err := s.Snapshots().Open(id); return err },
		"sink.Close":    sink.Close,
		"SetClusterID":  func() error { return s.SetClusterID("c") },
		"SetRestored":   func() error { return s.SetRestored(1) },
	} {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: error %v, want %v", name, err, ErrClosed)
		}
	}
	if s.Empty() {
		t.Error("a closed store says that it is empty")
	}
}

func TestInterruptedBootstrapIsUndone(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	if err := s.Stable().SetUint64([]byte("CurrentTerm"), 1); err != nil { // where BootstrapCluster was when the power failed
		t.Fatal(err)
	}
	if s.Empty() {
		t.Fatal("a term was stored, and the store is empty")
	}
	closeStore(t, s)
	s = openStore(t, folder)
	if !s.Empty() {
		t.Error("the node can't be bootstrapped any more")
	}
	// Anything more than that stays: a vote, a later term, an entry.
	for name, more := range map[string]func(*Store) error{
		"vote": func(s *Store) error {
			return errors.Join(s.Stable().SetUint64([]byte("LastVoteTerm"), 1), s.Stable().Set([]byte("LastVoteCand"), []byte("n2")))
		},
		"term":  func(s *Store) error { return s.Stable().SetUint64([]byte("CurrentTerm"), 2) },
		"entry": func(s *Store) error { return s.Logs().StoreLogs(entries(1, 1, 1)) },
	} {
		folder := t.TempDir()
		s := openStore(t, folder)
		if err := errors.Join(s.Stable().SetUint64([]byte("CurrentTerm"), 1), more(s)); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		if s := openStore(t, folder); s.Empty() {
			t.Errorf("%s: what was stored is gone", name)
		} else if term, err := s.Stable().GetUint64([]byte("CurrentTerm")); err != nil || term == 0 {
			t.Errorf("%s: the term is %d, error %v", name, term, err)
		}
	}
}

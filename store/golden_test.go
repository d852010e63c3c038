package store

import (
	"archive/zip"
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/logs"
	"github.com/signalbox/signalbox/test/storetest"
)

var updateFolder = flag.Bool("update", false, "write the data folder with a journal anew")

// goldenFolder is a data folder with a journal, as a crash left it: some entries are in raft.db,
// those after them in the journal alone, and some of these are cut off. Every later program opens it.
const goldenFolder = "testdata/journaled.zip"

// makeGoldenFolder writes goldenFolder.
func makeGoldenFolder(t *testing.T) {
	path := t.TempDir()
	s := openStore(t, path, func(o *Options) { o.Journal, o.JournalHalf = true, 8<<10 })
	for term := uint64(1); term <= 3; term++ {
		storetest.Must(t, s.Stable().SetUint64([]byte("CurrentTerm"), term))
	}
	storeEntries(t, s, 1, 60, 1)
	storetest.TakeSnapshot(t, s.Snapshots(), 20, 1, []byte("state"))
	drain(t, s)
	err := s.Logs().DeleteRange(1, 15)
	for first := uint64(61); first <= 141; first += 20 {
		storeEntries(t, s, first, first+19, 2)
	}
	err = errors.Join(err, s.Logs().DeleteRange(151, 160))
	storeEntries(t, s, 151, 153, 3)
	abandon(t, s)
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	storetest.Must(t, errors.Join(err, archive.AddFS(os.DirFS(path)), archive.Close(), os.WriteFile(goldenFolder, packed.Bytes(), 0o644)))
}

// TestFolderWithAJournal: the golden folder has all its entries, to this program with and without
// a journal and to one that only looks.
func TestFolderWithAJournal(t *testing.T) {
	if *updateFolder && !journaled {
		makeGoldenFolder(t)
	}
	archive, err := zip.OpenReader(goldenFolder)
	storetest.Must(t, err)
	defer func() { _ = archive.Close() }()
	path := filepath.Join(t.TempDir(), "data")
	storetest.Must(t, os.CopyFS(path, archive))
	if below, err := logs.Read(path, false); err != nil || below.Last < 60 || below.Last >= 150 {
		t.Errorf("raft.db ends at %d, error %v", below.Last, err)
	}
	v, err := Look(path, false)
	storetest.Must(t, err)
	looked := uint64(15)
	if err := v.Entries(15, func(log *raft.Log) error { looked = log.Index; return nil }); err != nil || looked != 153 {
		t.Errorf("a look finds entries up to %d, error %v", looked, err)
	}
	if len(v.Damage) > 0 || !v.Facts.Journal || v.Log.First != 16 || v.Log.Last != 153 || v.Log.Term() != 3 {
		t.Errorf("a look finds %d to %d, term %d, journal %t, damage %v", v.Log.First, v.Log.Last, v.Log.Term(), v.Facts.Journal, v.Damage)
	}
	storetest.Must(t, v.Close())
	for range 2 {
		s := openStore(t, path)
		if first, err := s.Logs().FirstIndex(); err != nil || first != 16 || s.Journal() != journaled {
			t.Errorf("it begins at %d, journal %t, error %v", first, s.Journal(), err)
		}
		for index, term := uint64(16), uint64(1); index <= 153; index++ {
			var got raft.Log
			switch index {
			case 61, 151:
				term++
			}
			want := storetest.Entries(index, index, term)[0]
			if err := s.Logs().GetLog(index, &got); err != nil || got.Term != term || string(got.Data) != string(want.Data) {
				t.Fatalf("entry %d is %+v, error %v", index, got, err)
			}
		}
		if last, err := s.Logs().LastIndex(); err != nil || last != 153 {
			t.Errorf("it ends at %d, error %v", last, err)
		}
		storetest.WantListed(t, s.Snapshots(), "1-20")
		closeStore(t, s)
	}
}

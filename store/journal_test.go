package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/test/storetest"
)

// TestAFolderIsOpenedWithAndWithoutAJournal: all entries are there either way, also those that
// only the journal had, and a look changes nothing.
func TestAFolderIsOpenedWithAndWithoutAJournal(t *testing.T) {
	path := t.TempDir()
	last := uint64(0)
	for i, with := range []bool{false, true, true, false, false, true, false} {
		s := openStore(t, path, func(o *Options) { o.Journal = with })
		_, err := os.Stat(filepath.Join(path, journalFile))
		if s.Journal() != with || (err == nil) != with {
			t.Fatalf("open %d: the record says %t, the file: %v", i, s.Journal(), err)
		}
		if last > 0 {
			storetest.CheckEntries(t, s.Logs(), 1, last, 1)
		}
		storeEntries(t, s, last+1, last+40, 1)
		if last += 40; i%2 == 0 {
			storetest.Must(t, s.Logs().DeleteRange(last-9, last))
			last -= 10
		}
		abandon(t, s)
		v, err := Look(path, false)
		storetest.Must(t, err)
		if len(v.Damage) > 0 || v.Log.First != 1 || v.Log.Last != last || v.Facts.Journal != with {
			t.Errorf("open %d: seen %d to %d, damage %v, journal %t", i, v.Log.First, v.Log.Last, v.Damage, v.Facts.Journal)
		}
		storetest.Must(t, v.Close())
	}
}

// TestMissingJournalIsDamage, also when it is not wanted any more.
func TestMissingJournalIsDamage(t *testing.T) {
	path := t.TempDir()
	closeStore(t, openStore(t, path, func(o *Options) { o.Journal = true }))
	storetest.Must(t, os.Remove(filepath.Join(path, journalFile)))
	for _, with := range []bool{true, false} {
		_, err := Open(Options{Folder: path, NodeID: "n1", Journal: with})
		storetest.WantError(t, err, damage.ErrDamaged, path+"/"+journalFile, "missing")
	}
}

// TestInterruptedChangeOfTheJournal: a file that the record doesn't name is of no account.
func TestInterruptedChangeOfTheJournal(t *testing.T) {
	path := t.TempDir()
	s := openStore(t, path, func(o *Options) { o.Journal = false })
	storeEntries(t, s, 1, 10, 1)
	closeStore(t, s)
	for _, with := range []bool{false, true} {
		storetest.Must(t, os.WriteFile(filepath.Join(path, journalFile), []byte("half of a journal"), 0o600))
		s = openStore(t, path, func(o *Options) { o.Journal = with })
		if _, err := os.Stat(filepath.Join(path, journalFile)); s.Journal() != with || (err == nil) != with {
			t.Errorf("journal %t: the record says %t, the file: %v", with, s.Journal(), err)
		}
		storetest.CheckEntries(t, s.Logs(), 1, 10, 1)
		closeStore(t, s)
	}
}

// TestReplacedFolderKeepsItsJournal: the old content stays whole beside the new one.
func TestReplacedFolderKeepsItsJournal(t *testing.T) {
	path := t.TempDir()
	s := openStore(t, path, func(o *Options) { o.Journal = true; o.ClusterID = "c1" })
	storeEntries(t, s, 1, 10, 1)
	abandon(t, s)
	v, err := Look(path, true)
	storetest.Must(t, err)
	kept, err := folderReplaced(v)
	storetest.Must(t, err)
	storetest.Must(t, v.Close())
	old := openStore(t, kept, func(o *Options) { o.Journal = true })
	storetest.CheckEntries(t, old.Logs(), 1, 10, 1)
	if renewed := openStore(t, path, func(o *Options) { o.Journal = true }); renewed.ClusterID() != "c2" || renewed.Empty() {
		t.Errorf("the new content is of cluster %q, empty %t", renewed.ClusterID(), renewed.Empty())
	}
}

// folderReplaced replaces the content by a new cluster's, without entries.
func folderReplaced(v *View) (string, error) {
	path, err := folder.BeginReplacement(v.Facts.Path)
	if err != nil {
		return "", err
	}
	s, err := Open(Options{Folder: path, NodeID: "n1", ClusterID: "c2", Journal: v.Facts.Journal})
	if err != nil {
		return "", err
	}
	if err := s.Stable().SetUint64([]byte("CurrentTerm"), 7); err != nil {
		return "", err
	}
	if err := s.Close(); err != nil {
		return "", err
	}
	return folder.Replace(v.Facts.Path)
}

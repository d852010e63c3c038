package folder

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/signalbox/signalbox/test/storetest"
)

func TestRecordIsTextAndTakesNoOtherBytes(t *testing.T) {
	for _, r := range []record{
		{format: 1, node: "n1"},
		{format: 2, node: "n2", journal: noJournal, folder: ID{1, 0xfe}},
		{format: 2, node: "n 2", cluster: "c1", journal: noJournal, folder: ID{15: 9}, restored: 17, complete: true},
		{format: 2, node: "n3", journal: twoHalves, complete: true},
		{format: 1, node: "n 1 \"quoted\" ünï", cluster: "c1", complete: true},
	} {
		encoded := r.encode()
		if decoded, err := decodeRecord(encoded); err != nil || decoded != r {
			t.Fatalf("%+v was read as %+v, error %v", r, decoded, err)
		}
		for length := range encoded {
			if _, err := decodeRecord(encoded[:length]); err == nil {
				t.Errorf("%d of %d bytes were taken", length, len(encoded))
			}
		}
		for bit := range 8 * len(encoded) {
			flipped := slices.Clone(encoded)
			flipped[bit/8] ^= 1 << (bit % 8)
			if _, err := decodeRecord(flipped); err == nil {
				t.Errorf("taken with bit %d flipped: %q", bit, flipped)
			}
		}
	}
}

// TestRecordsOfAllFormatsAreForEver: each golden file is read as what it was
// written from, and written to the same bytes.
func TestRecordsOfAllFormatsAreForEver(t *testing.T) {
	folder, err := parseID("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
	if err != nil {
		t.Fatal(err)
	}
	newest := 0
	for name, want := range map[string]record{
		"FORMAT-1":         {format: 1, node: "n1", complete: true},
		"FORMAT-2":         {format: 2, node: "n1", cluster: "5a0f6c1e8d7b4a39926e1f0c3b5d7e81", folder: folder, journal: noJournal, restored: 17, complete: true},
		"FORMAT-2-journal": {format: 2, node: "n1", cluster: "5a0f6c1e8d7b4a39926e1f0c3b5d7e81", folder: folder, journal: twoHalves, complete: true},
	} {
		golden, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRecord(golden); err != nil || got != want {
			t.Errorf("%s is read as %+v, error %v", name, got, err)
		}
		if got := want.encode(); !bytes.Equal(got, golden) {
			t.Errorf("%s became %q", name, got)
		}
		newest = max(newest, want.format)
	}
	if newest != knownFormat {
		t.Errorf("folders are written in format %d, of which there is no golden record", knownFormat)
	}
}

// TestFolderOfFormat1IsUpgradedWhenItIsOpened: it gets an id of its own, once.
func TestFolderOfFormat1IsUpgradedWhenItIsOpened(t *testing.T) {
	folder := t.TempDir()
	closeFolder(t, openFolder(t, folder))
	golden, err := os.ReadFile(filepath.Join("testdata", "FORMAT-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, recordFile), golden, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openFolder(t, folder)
	id := s.FolderID()
	if id == (ID{}) || s.ClusterID() != "" || s.NodeID() != "n1" || s.Restored() != 0 {
		t.Errorf("folder id %v, cluster %q, node %q, restored %d", id, s.ClusterID(), s.NodeID(), s.Restored())
	}
	closeFolder(t, s)
	if s = openFolder(t, folder); s.FolderID() != id {
		t.Errorf("folder id %v, and %v when it was opened again", id, s.FolderID())
	}
}

// TestFoldersHaveDifferentIDs: also those in memory.
func TestFoldersHaveDifferentIDs(t *testing.T) {
	seen := map[ID]bool{}
	for range 2 {
		seen[openFolder(t, "").FolderID()], seen[openFolder(t, t.TempDir()).FolderID()] = true, true
	}
	if len(seen) != 4 || seen[ID{}] {
		t.Errorf("ids of four folders: %v", seen)
	}
}

// TestFolderWithAnUnknownJournalIsRefused: a later version may keep entries there
// that raft.db lacks.
func TestFolderWithAnUnknownJournalIsRefused(t *testing.T) {
	folder := t.TempDir()
	closeFolder(t, openFolder(t, folder))
	if err := (record{format: 2, node: "n1", folder: ID{1}, journal: "segments", complete: true}).write(folder); err != nil {
		t.Fatal(err)
	}
	before := contents(t, folder)
	_, err := Open(configOf(folder))
	storetest.WantError(t, err, ErrNewerFormat, folder, `"segments"`)
	if after := contents(t, folder); after != before {
		t.Errorf("the folder was changed from\n%s\nto\n%s", before, after)
	}
}

// TestRestoredIsKeptUntilItIsCleared, also through a restart.
func TestRestoredIsKeptUntilItIsCleared(t *testing.T) {
	folder := t.TempDir()
	for _, term := range []uint64{17, 17, 0, 0} {
		s := openFolder(t, folder)
		if err := s.SetRestored(term); err != nil {
			t.Fatal(err)
		}
		closeFolder(t, s)
		s = openFolder(t, folder)
		if got := s.Restored(); got != term {
			t.Errorf("restored after term %d, want %d", got, term)
		}
		closeFolder(t, s)
	}
}

// FuzzFolderRecord decodes any bytes, as they are and under a right checksum.
func FuzzFolderRecord(f *testing.F) {
	f.Add(record{format: 1, node: "n1", cluster: "c1", complete: true}.encode())
	f.Add(record{format: 2, node: "n1", cluster: "c1", folder: ID{1}, journal: noJournal, complete: true}.encode())
	f.Add([]byte(recordTitle + "\nformat 2\nnobody knows what is here\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		right := fmt.Appendf(bytes.Clone(content), "crc32c %08x\n", crc32.Checksum(content, castagnoli))
		for _, encoded := range [][]byte{content, right} {
			decoded, err := decodeRecord(encoded)
			if err == nil && decoded.format <= knownFormat && (decoded.format == 1 || knownJournal(decoded.journal)) && !bytes.Equal(decoded.encode(), encoded) {
				t.Errorf("%q was taken, and is stored as %q", encoded, decoded.encode())
			}
		}
	})
}

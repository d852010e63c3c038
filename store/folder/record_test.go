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
		{format: 3, node: "n2", journal: noJournal, folder: ID{1, 0xfe}},
		{format: 3, node: "n 2", cluster: "c1", journal: noJournal, folder: ID{15: 9}, restored: 17, complete: true},
		{format: 3, node: "n3", journal: twoHalves, complete: true},
		{format: 3, node: "n 1 \"quoted\" ünï", cluster: "c1", journal: noJournal, complete: true},
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

// TestRecordsAreForEver: each golden file is read as what it was
// written from, and written to the same bytes.
func TestRecordsAreForEver(t *testing.T) {
	folder, err := parseID("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
	storetest.Must(t, err)
	for name, want := range map[string]record{
		"FORMAT-3":         {format: 3, node: "n1", cluster: "5a0f6c1e8d7b4a39926e1f0c3b5d7e81", folder: folder, journal: noJournal, restored: 17, complete: true},
		"FORMAT-3-journal": {format: 3, node: "n1", cluster: "5a0f6c1e8d7b4a39926e1f0c3b5d7e81", folder: folder, journal: twoHalves, complete: true},
	} {
		golden, err := os.ReadFile(filepath.Join("testdata", name))
		storetest.Must(t, err)
		if got, err := decodeRecord(golden); err != nil || got != want {
			t.Errorf("%s is read as %+v, error %v", name, got, err)
		}
		if got := want.encode(); !bytes.Equal(got, golden) {
			t.Errorf("%s became %q", name, got)
		}
	}
}

// TestFolderOfAnEarlierProgramIsRefused: the error says so in one line, and the folder stays as it is.
func TestFolderOfAnEarlierProgramIsRefused(t *testing.T) {
	for format := 1; format < knownFormat; format++ {
		folder := t.TempDir()
		closeFolder(t, openFolder(t, folder))
		body := fmt.Appendf(nil, "%s\nformat %d\nnode \"n1\"\ncluster \"\"\nstate complete\n", recordTitle, format)
		body = fmt.Appendf(body, "crc32c %08x\n", crc32.Checksum(body, castagnoli))
		storetest.Must(t, os.WriteFile(filepath.Join(folder, recordFile), body, 0o600))
		before := contents(t, folder)
		_, err := Open(configOf(folder))
		storetest.WantError(t, err, ErrOldFormat, folder, fmt.Sprintf("format %d, of a program before the first release", format))
		if after := contents(t, folder); after != before {
			t.Errorf("the folder was changed from\n%s\nto\n%s", before, after)
		}
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
	storetest.Must(t, (record{format: 3, node: "n1", folder: ID{1}, journal: "segments", complete: true}).write(folder))
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
		storetest.Must(t, s.SetRestoredTerm(term))
		closeFolder(t, s)
		s = openFolder(t, folder)
		if got := s.RestoredTerm(); got != term {
			t.Errorf("restored after term %d, want %d", got, term)
		}
		closeFolder(t, s)
	}
}

// FuzzFolderRecord decodes any bytes, as they are and under a right checksum.
func FuzzFolderRecord(f *testing.F) {
	f.Add(record{format: 3, node: "n1", cluster: "c1", folder: ID{1}, journal: noJournal, complete: true}.encode())
	f.Add([]byte(recordTitle + "\nformat 3\nnobody knows what is here\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		right := fmt.Appendf(bytes.Clone(content), "crc32c %08x\n", crc32.Checksum(content, castagnoli))
		for _, encoded := range [][]byte{content, right} {
			decoded, err := decodeRecord(encoded)
			if err == nil && decoded.format == knownFormat && knownJournal(decoded.journal) && !bytes.Equal(decoded.encode(), encoded) {
				t.Errorf("%q was taken, and is stored as %q", encoded, decoded.encode())
			}
		}
	})
}

package folder

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// knownFormat is the version of the folder's format that this program writes. It rises when older programs can't read
// the new folders. Programs before the first release wrote formats 1 and 2.
const knownFormat = 3

// recordTitle is the first line of the record. It identifies a folder of this program.
const recordTitle = "signalbox data folder"

// castagnoli is the polynomial of the checksums of record and witness (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The values of the line "journal". With noJournal, the whole log is in raft-boltdb. With twoHalves, the newest entries
// may be only in the journal, so programs that don't know package journal refuse the folder.
const (
	noJournal = "none"
	twoHalves = "two-halves"
)

func knownJournal(kind string) bool { return kind == noJournal || kind == twoHalves }

// record is the content of the file FORMAT: to whom the folder belongs, and how to read it. It is text, so that people
// can read it:
//
//	signalbox data folder
//	format 3
//	node "n1"
//	cluster "5a0f6c1e8d7b4a39926e1f0c3b5d7e81"
//	folder 0f1e2d3c4b5a69788796a5b4c3d2e1f0
//	journal none
//	restored 0
//	state complete
//	crc32c 1a2b3c4d
//
// Every format keeps the first two lines and the last line, a checksum of all bytes before it. So a program can tell a
// folder of another version from a damaged folder.
type record struct {
	format   int
	node     string
	cluster  string // "" while it is not known
	folder   ID
	journal  string // noJournal or twoHalves
	restored uint64 // see Folder.SetRestoredTerm
	complete bool   // false until the other files are created
}

// errRecord means that the bytes are no record, or a damaged record.
var errRecord = errors.New("not a readable record")

func (r record) encode() []byte {
	state := "creating"
	if r.complete {
		state = "complete"
	}
	body := fmt.Appendf(nil, "%s\nformat %d\nnode %q\ncluster %q\nfolder %v\njournal %s\nrestored %d\nstate %s\n",
		recordTitle, r.format, r.node, r.cluster, r.folder, r.journal, r.restored, state)
	return fmt.Appendf(body, "crc32c %08x\n", crc32.Checksum(body, castagnoli))
}

// decodeRecord decodes the file's content. It fails with errRecord for bytes that encode has not written. A record of
// an unknown format has only format set, and a record of an unknown journal only format and journal: the caller tells
// the user which version wrote the folder.
func decodeRecord(content []byte) (record, error) {
	text := string(content)
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	body, last := text[:at], text[at:]
	if !strings.HasPrefix(body, recordTitle+"\n") || last != fmt.Sprintf("crc32c %08x\n", crc32.Checksum([]byte(body), castagnoli)) {
		return record{}, errRecord
	}
	values := map[string]string{}
	for line := range strings.Lines(body) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		values[key] = value
	}
	format, err := strconv.Atoi(values["format"])
	if err != nil || format < 1 {
		return record{}, errRecord
	}
	if format != knownFormat {
		return record{format: format}, nil
	}
	decoded := record{format: format, complete: values["state"] == "complete", journal: values["journal"]}
	if !knownJournal(decoded.journal) && decoded.journal != "" {
		return record{format: format, journal: decoded.journal}, nil
	}
	if decoded.parse(values) != nil || string(decoded.encode()) != text {
		return record{}, errRecord
	}
	return decoded, nil
}

// parse parses the quoted and the numeric values.
func (r *record) parse(values map[string]string) error {
	var err error
	if r.node, err = strconv.Unquote(values["node"]); err != nil {
		return err
	}
	if r.cluster, err = strconv.Unquote(values["cluster"]); err != nil {
		return err
	}
	if r.folder, err = parseID(values["folder"]); err != nil {
		return err
	}
	r.restored, err = strconv.ParseUint(values["restored"], 10, 64)
	return err
}

// ID identifies a data folder: 128 random bits, drawn when the folder is made. A copy of a folder has the same ID.
type ID [16]byte

// String returns 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

func parseID(text string) (id ID, err error) {
	if len(text) != 2*len(id) {
		return ID{}, errRecord
	}
	_, err = hex.Decode(id[:], []byte(text))
	return id, err
}

func (c Config) newRecord() record {
	made := record{format: knownFormat, node: c.NodeID, cluster: c.ClusterID, journal: noJournal}
	_, _ = rand.Read(made.folder[:]) // never fails
	return made
}

// write replaces the record in one step. It is durable on return.
func (r record) write(folder string) error {
	temporary := filepath.Join(folder, recordFile+temporarySuffix)
	if err := writeSynced(temporary, r.encode()); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(folder, recordFile)); err != nil {
		return err
	}
	return syncFolder(folder)
}

// writeSynced writes a whole file. On return its content is durable; its name becomes durable in syncFolder.
func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncFolder makes the names in a folder durable.
func syncFolder(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

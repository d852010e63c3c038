package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// knownFormat is the version of the folder's format that this program writes. It
// rises when a folder written from then on can't be read by older programs.
const knownFormat = 1

// recordTitle is the first line of the record, and says whose folder it is.
const recordTitle = "signalbox data folder"

// castagnoli is the polynomial of all checksums in a data folder (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is the file FORMAT: whose folder this is and how it is to be read. It
// is text, for people:
//
//	signalbox data folder
//	format 1
//	node "n1"
//	cluster ""
//	state complete
//	crc32c 1a2b3c4d
//
// Every later format keeps the first two lines and the last, which covers all
// bytes before it, so that an older program can tell "newer" from "damaged".
type record struct {
	format   int
	node     string
	cluster  string // "" as long as it isn't known
	complete bool   // false while the other files are being created
}

// errRecord: the bytes are not a record, or a damaged one.
var errRecord = errors.New("not a readable record")

// encode returns the file's content.
func (r record) encode() []byte {
	state := "creating"
	if r.complete {
		state = "complete"
	}
	body := fmt.Appendf(nil, "%s\nformat %d\nnode %q\ncluster %q\nstate %s\n", recordTitle, r.format, r.node, r.cluster, state)
	return fmt.Appendf(body, "crc32c %08x\n", crc32.Checksum(body, castagnoli))
}

// decodeRecord reads the file's content. The error is errRecord for anything
// that encode didn't write; of a record of a newer format only the format is
// returned, without an error.
func decodeRecord(content []byte) (record, error) {
	text := string(content)
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	body, last := text[:at], text[at:]
	if !strings.HasPrefix(body, recordTitle+"\n") || last != fmt.Sprintf("crc32c %08x\n", crc32.Checksum([]byte(body), castagnoli)) {
		return record{}, errRecord
	}
	lines := strings.Split(body, "\n") // the last one is empty: body ends with a line end
	value := func(line int, key string) string {
		if line >= len(lines) {
			return ""
		}
		found, _ := strings.CutPrefix(lines[line], key+" ")
		return found
	}
	format, err := strconv.Atoi(value(1, "format"))
	if err != nil || format < 1 {
		return record{}, errRecord
	}
	if format > knownFormat {
		return record{format: format}, nil
	}
	node, nodeErr := strconv.Unquote(value(2, "node"))
	cluster, clusterErr := strconv.Unquote(value(3, "cluster"))
	decoded := record{format: format, node: node, cluster: cluster, complete: value(4, "state") == "complete"}
	if nodeErr != nil || clusterErr != nil || string(decoded.encode()) != text {
		return record{}, errRecord
	}
	return decoded, nil
}

// write puts the record in place of the one before it, in one step, and returns
// when that is on the disk.
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

// writeSynced writes a whole file, and returns when its content is on the disk.
// Its name is not, before syncFolder.
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

// syncFolder returns when the names in a folder are on the disk.
func syncFolder(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

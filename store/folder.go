package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// What a data folder holds.
const (
	lockFile      = "lock"         // see lock.go
	recordFile    = "FORMAT"       // see record.go
	raftFile      = "raft.db"      // log and stable values, by raft-boltdb
	snapshotsFile = "snapshots.db" // see snapshots.go
	witnessFile   = "witness"      // see witness.go
	reserveFile   = "reserve"      // see reserve.go; may be missing

	temporarySuffix = ".tmp"
)

// dataFiles must all be there in a folder whose record says "complete".
var dataFiles = []string{raftFile, snapshotsFile, witnessFile}

// harmless are names that may stand in a folder that counts as empty: what a
// start that was cut short leaves before its record is in place, and what a file
// system makes in the root of a volume.
var harmless = []string{lockFile, recordFile + temporarySuffix, "lost+found"}

// prepareFolder makes sure that folder is one of ours, of a known format, of the
// given node, complete, and locked by us; a missing or empty one is made so. On
// any error the lock is free again.
func prepareFolder(o Options, logger hclog.Logger) (record, *folderLock, error) {
	// First without touching anything: what isn't ours must stay as it is, and
	// not get a lock file.
	if _, err := inspect(o); err != nil {
		return record{}, nil, err
	}
	if err := makeFolder(o.Folder); err != nil {
		return record{}, nil, fmt.Errorf("data folder %s can't be made: %w", o.Folder, err)
	}
	lock, err := lockFolder(o.Folder)
	if err != nil {
		return record{}, nil, err
	}
	// Again under the lock: another process may have been at work.
	found, err := inspect(o)
	if err == nil && !found.complete {
		found, err = fillFolder(o, logger)
	}
	if err == nil {
		err = checkFiles(o.Folder)
	}
	if err == nil {
		found, err = completeRecord(found, o)
	}
	if err != nil {
		return record{}, nil, errors.Join(err, lock.release())
	}
	return found, lock, nil
}

// completeRecord notes the cluster's id if it was not known, and turns a record of
// format 1 into one of the present format.
func completeRecord(found record, o Options) (record, error) {
	before := found
	if found.cluster == "" {
		found.cluster = o.ClusterID
	}
	if found.format == 1 {
		found.format, found.folder, found.journal = knownFormat, drawFolderID(), noJournal
	}
	if found == before {
		return found, nil
	}
	return found, found.write(o.Folder)
}

// inspect reads what a folder is, and changes nothing. Its record is zero when
// there is none yet and the folder is missing or empty. The error says why this
// folder can't be used with these options.
func inspect(o Options) (record, error) {
	content, err := os.ReadFile(filepath.Join(o.Folder, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, checkEmpty(o.Folder)
	}
	if err != nil {
		return record{}, fmt.Errorf("data folder %s can't be read: %w", o.Folder, err)
	}
	found, err := decodeRecord(content)
	switch {
	case err != nil && (strings.HasPrefix(string(content), recordTitle) || exists(o.Folder, witnessFile)):
		return record{}, &DamagedError{Folder: o.Folder, File: recordFile, Detail: err.Error()}
	case err != nil:
		return record{}, &ForeignError{Folder: o.Folder, Found: "its file " + recordFile + " is not ours"}
	case found.format > knownFormat:
		return record{}, &NewerFormatError{Folder: o.Folder, Found: found.format, Known: knownFormat}
	case found.format > 1 && found.journal != noJournal:
		return record{}, &NewerFormatError{Folder: o.Folder, Found: found.format, Known: knownFormat, Journal: found.journal}
	case !found.complete: // nothing was ever stored in it, so anyone may have it
		return found, nil
	case found.node != o.NodeID:
		return record{}, &IdentityError{Folder: o.Folder, What: "node", Found: found.node, Wanted: o.NodeID}
	case found.cluster != "" && o.ClusterID != "" && found.cluster != o.ClusterID:
		return record{}, &IdentityError{Folder: o.Folder, What: "cluster", Found: found.cluster, Wanted: o.ClusterID}
	}
	return found, nil
}

// checkEmpty makes sure that a folder is missing, or has nothing in it.
func checkEmpty(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	if exists(folder, witnessFile) { // only written after the record, and never alone
		return &DamagedError{Folder: folder, File: recordFile, Detail: "the file is missing"}
	}
	for _, entry := range entries {
		if !slices.Contains(harmless, entry.Name()) {
			return &ForeignError{Folder: folder, Found: fmt.Sprintf("it holds %q, and no file %s", entry.Name(), recordFile)}
		}
	}
	return nil
}

// makeFolder makes a folder that is missing, and returns when it is on the disk.
func makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(folder)
	if above != folder {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(above)
}

// fillFolder creates the files of a new data folder. The record comes first,
// saying "creating", and last, saying "complete": so a crash at any step leaves
// a folder that the next start recognises, empties and fills again, and a
// complete one never gets an empty file in place of one that it lost.
func fillFolder(o Options, logger hclog.Logger) (record, error) {
	fail := func(err error) (record, error) {
		return record{}, fmt.Errorf("data folder %s can't be made: %w", o.Folder, asFull(o.Folder, err))
	}
	made := newRecord(o)
	if err := made.write(o.Folder); err != nil {
		return fail(err)
	}
	for _, name := range append(slices.Clone(dataFiles), reserveFile) {
		if err := os.Remove(filepath.Join(o.Folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
	}
	for _, create := range []func(Options) error{createRaftFile, createSnapshotsFile, createWitness} {
		if err := create(o); err != nil {
			return fail(err)
		}
	}
	if err := syncFolder(o.Folder); err != nil {
		return fail(err)
	}
	made.complete = true
	if err := made.write(o.Folder); err != nil {
		return fail(err)
	}
	logger.Info("data folder made", "folder", o.Folder, "node", o.NodeID, "format", knownFormat)
	return made, nil
}

// createRaftFile makes the file of log and stable values. The stable record is
// there from the start, so that a missing one is damage and not "never voted".
func createRaftFile(o Options) error {
	bolt, err := openRaftBolt(o)
	if err != nil {
		return err
	}
	return errors.Join(bolt.Set(stableKey, stableRecord{generation: 1}.encode()), bolt.Close())
}

// openRaftBolt opens the file of log and stable values with raft-boltdb.
func openRaftBolt(o Options) (*raftboltdb.BoltStore, error) {
	return raftboltdb.New(raftboltdb.Options{Path: filepath.Join(o.Folder, raftFile), BoltOptions: o.boltOptions()})
}

// checkFiles makes sure that the files of a complete folder are there: bbolt
// would make a missing one anew, empty, and the node would forget its votes.
func checkFiles(folder string) error {
	for _, name := range dataFiles {
		info, err := os.Stat(filepath.Join(folder, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &DamagedError{Folder: folder, File: name, Detail: "the file is missing"}
		case err != nil:
			return fmt.Errorf("data folder %s can't be read: %w", folder, err)
		case info.Size() == 0:
			return &DamagedError{Folder: folder, File: name, Detail: "the file is empty"}
		}
	}
	return nil
}

func exists(folder, name string) bool {
	_, err := os.Stat(filepath.Join(folder, name))
	return err == nil
}

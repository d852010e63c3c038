package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/signalbox/signalbox/store/damage"
)

// Facts are the contents of a data folder's record and witness, and the damage that Look has found.
type Facts struct {
	Path         string // absolute
	Format       int
	NodeID       string
	ClusterID    string // "" if not known
	FolderID     ID
	Journal      bool   // see Folder.Journal
	RestoredTerm uint64 // see Folder.RestoredTerm
	Bounds       Bounds // from the witness; zero if the witness is damaged
	Damage       []error
}

// Look locks a data folder and reads its facts. No node can open the folder until holder is closed. Without alone,
// other calls of Look may share the folder, Look writes no file, and it needs only permission to read. With alone, it
// excludes other calls of Look, and first finishes an interrupted replacement. files are the other packages' files of a
// complete folder; a missing file is reported as damage in the facts.
//
// Errors: LockedError, ForeignError, NewerFormatError, a damage.Error if the record is damaged, since the rest has no
// meaning without it, and errors of the system.
func Look(path string, files []string, alone bool) (facts Facts, holder io.Closer, err error) {
	if _, err := lookRecord(path); err != nil { // first, since a foreign folder must not get a lock file
		return Facts{}, nil, err
	}
	var lock *os.File
	if alone {
		lock, err = lockFolder(path)
	} else {
		lock, err = shareFolder(path)
	}
	if err != nil {
		return Facts{}, nil, err
	}
	if alone {
		err = finishReplacement(path)
	} else if exists(path, readyFolder) {
		err = fmt.Errorf("a recovery of data folder %s was interrupted: the next start of its node, or of a recovery, finishes it", path)
	}
	if err == nil {
		facts, err = readFacts(path, files)
	}
	if err != nil {
		return Facts{}, nil, errors.Join(err, lock.Close())
	}
	return facts, lock, nil
}

// lookRecord is readRecord, but fails if the folder is empty.
func lookRecord(path string) (record, error) {
	if _, err := os.Stat(path); err != nil {
		return record{}, fmt.Errorf("data folder %s can't be read: %w", path, err)
	}
	found, err := readRecord(path)
	if err == nil && !found.complete {
		err = fmt.Errorf("data folder %s is empty: no node has been started on it", path)
	}
	return found, err
}

// shareFolder locks a folder for reading; other readers may share the lock. It writes no file. A folder without a lock
// file, for example a copy, is not in use; for it, shareFolder returns an unlocked file.
func shareFolder(folder string) (*os.File, error) {
	file, err := os.Open(filepath.Join(folder, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return os.Open(filepath.Join(folder, recordFile))
	}
	if err != nil {
		return nil, fmt.Errorf("data folder %s can't be locked: %w", folder, err)
	}
	err = lock(file, false)
	switch {
	case errors.Is(err, errLocked):
		err = lockHolder(file, folder)
	case err != nil:
		err = fmt.Errorf("data folder %s can't be locked: %w", folder, err)
	default:
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}

// readFacts reads the record and the witness of a locked folder.
func readFacts(path string, files []string) (Facts, error) {
	found, err := lookRecord(path)
	if err != nil {
		return Facts{}, err
	}
	facts := Facts{
		Path: path, Format: found.format, NodeID: found.node, ClusterID: found.cluster, FolderID: found.folder,
		Journal: found.journal == twoHalves, RestoredTerm: found.restored,
	}
	for _, name := range files {
		if !exists(path, name) {
			facts.Damage = append(facts.Damage, &damage.Error{Folder: path, File: name, Detail: "the file is missing"})
		}
	}
	file, err := os.Open(filepath.Join(path, witnessFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		facts.Damage = append(facts.Damage, &damage.Error{Folder: path, File: witnessFile, Detail: "the file is missing"})
		return facts, nil
	case err != nil:
		return Facts{}, fmt.Errorf("data folder %s can't be read: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	var readable bool
	if facts.Bounds, _, readable = readWitness(file); !readable {
		facts.Damage = append(facts.Damage, damagedWitness(path))
	}
	return facts, nil
}

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

// Facts are what the record and the witness of a data folder say, and the damage that Look found.
type Facts struct {
	Path         string // absolute
	Format       int
	NodeID       string
	ClusterID    string // "" if it is not known
	FolderID     ID
	Journal      bool   // see Folder.Journal
	RestoredTerm uint64 // see Folder.RestoredTerm
	Bounds       Bounds // by its witness; zero if that is damaged
	Damage       []error
}

// Look locks a data folder and reads its facts. Until holder is closed no node can open the
// folder. Without alone, Look writes no file and needs only permission to read. With alone, it
// excludes other calls of Look too, and first finishes a replacement that was interrupted.
// files are the files of other packages that a complete folder has; Look reports a missing file
// as damage in the facts.
//
// Errors: LockedError, ForeignError, NewerFormatError, a damage.Error for the record, without
// which the rest has no meaning, and errors of the system.
func Look(path string, files []string, alone bool) (facts Facts, holder io.Closer, err error) {
	if _, err := lookRecord(path); err != nil { // a foreign folder gets no lock file
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

// lookRecord is readRecord for a folder that must not be empty.
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

// shareFolder locks a folder for readers, which share the lock. It writes no file. A folder
// without a lock file, for example a copy of another folder, is in use by no process; then
// shareFolder returns a file without a lock.
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

// readFacts reads record and witness of a locked folder.
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
	defer func() { _ = file.Close() }() // only read
	var readable bool
	if facts.Bounds, _, readable = readWitness(file); !readable {
		facts.Damage = append(facts.Damage, damagedWitness(path))
	}
	return facts, nil
}

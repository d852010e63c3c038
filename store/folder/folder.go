package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/store/damage"
)

// The files of a data folder that this package knows; Config.Files has the others.
const (
	lockFile    = "lock"    // see lockFolder
	recordFile  = "FORMAT"  // see record.go
	witnessFile = "witness" // see witness.go
	reserveFile = "reserve" // see space.go; may be missing

	temporarySuffix = ".tmp"
)

// maxIDBytes bounds the ids of nodes and clusters.
const maxIDBytes = 255

// harmless are names that may stand in a folder that counts as empty: the files that an
// interrupted start leaves before its record is in place, and the folder that a file system
// makes in the root of a volume.
var harmless = []string{lockFile, recordFile + temporarySuffix, "lost+found"}

// Config says which data folder to open. Guard and Logger are required.
type Config struct {
	Path      string // absolute; "" for a folder in memory, which has no files
	NodeID    string // required
	ClusterID string // "" if it is not known
	MinFree   uint64 // see Space
	Files     []File // which else belong to a complete folder, in the order of their creation
	Guard     *damage.Guard
	Logger    hclog.Logger
}

// File is a file of a data folder that another package reads and writes.
type File struct {
	Name   string
	Create func(folder string) error // for a new folder; durable on return, but for the file's name
}

// Folder is a data folder that is open and locked. Safe for concurrent use.
type Folder struct {
	config     Config
	lock       *os.File // nil in memory, as are witness and reserve
	witness    *Witness
	reserve    *Reserve
	low, spent *watermark

	mu     sync.Mutex
	record record
}

// Open opens and locks a data folder. It makes sure that the folder is ours, has a known
// format, belongs to the given node and is complete; it makes and fills a missing or empty
// folder. On any error it releases the lock.
//
// Errors: LockedError, ForeignError, NewerFormatError, OldFormatError, IdentityError (the folder was
// not changed), damage.Error, damage.FullError, and errors of the system.
func Open(c Config) (*Folder, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Path == "" {
		inMemory := c.newRecord()
		inMemory.complete = true
		return c.newFolder(inMemory, nil, nil, nil), nil
	}
	// First without touching anything: a folder that isn't ours must stay as it is,
	// and not get a lock file.
	if _, err := c.inspect(); err != nil {
		return nil, err
	}
	if err := makeFolder(c.Path); err != nil {
		return nil, fmt.Errorf("data folder %s can't be made: %w", c.Path, err)
	}
	lock, err := lockFolder(c.Path)
	if err != nil {
		return nil, err
	}
	// A program that was killed may have left names that are not on the disk yet: what is stored
	// from now on relies on them, above all on the record.
	err = syncFolder(c.Path)
	if err == nil {
		err = finishReplacement(c.Path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	found, err := c.prepare()
	var witness *Witness
	if err == nil {
		witness, err = openWitness(c)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return c.newFolder(found, lock, witness, openReserve(c.Path, c.Logger)), nil
}

func (c Config) newFolder(found record, lock *os.File, witness *Witness, reserve *Reserve) *Folder {
	return &Folder{
		config: c, lock: lock, witness: witness, reserve: reserve, record: found,
		low: newWatermark(c.MinFree), spent: newWatermark(c.MinFree / reserveShare),
	}
}

// check makes sure that the ids can be stored and shown.
func (c Config) check() error {
	if c.NodeID == "" {
		return errors.New("no node id is given")
	}
	return errors.Join(checkID(c.NodeID), checkID(c.ClusterID))
}

func checkID(id string) error {
	if len(id) > maxIDBytes || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("%q is not an id: up to %d bytes of text without control characters", id, maxIDBytes)
	}
	return nil
}

// Path returns the absolute path of the data folder, "" for one in memory.
func (f *Folder) Path() string { return f.config.Path }

// Witness returns the witness of what is stored; nil for a folder in memory.
func (f *Folder) Witness() *Witness { return f.witness }

// Reserve returns the room that is reserved; nil for a folder in memory.
func (f *Folder) Reserve() *Reserve { return f.reserve }

// Close closes the folder's own files and releases the lock. Call it once, after all other
// files are closed.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	return errors.Join(f.witness.close(), f.lock.Close())
}

// lockFolder locks a folder until the returned file is closed. It does not wait: if another
// Folder has the lock, the error is a LockedError. We use a lock of the kernel (flock) on the
// file "lock", so that it ends with the process, even after a crash. The file itself stays, and
// its content counts only while the lock is held.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder %s can't be locked: %w", folder, err)
	}
	err = lock(file, true)
	if errors.Is(err, errLocked) {
		locked := lockHolder(file, folder)
		_ = file.Close()
		return nil, locked
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("data folder %s can't be locked: %w", folder, err)
	}
	// The holder's name is a courtesy to the next process that tries, so failing to
	// write it (on a full disk, say) must not stop this one.
	host, _ := os.Hostname()
	_ = file.Truncate(0)
	_, _ = file.WriteAt(fmt.Appendf(nil, "%d %q\n", os.Getpid(), host), 0)
	return file, nil
}

// lockHolder returns the holder of the folder, as far as the lock file names it.
func lockHolder(file *os.File, folder string) *LockedError {
	locked := &LockedError{Folder: folder}
	content := make([]byte, 512)
	n, _ := file.ReadAt(content, 0)
	var pid int
	var host string
	if _, err := fmt.Sscanf(string(content[:n]), "%d %q\n", &pid, &host); err == nil {
		locked.PID, locked.Host = pid, host
	}
	return locked
}

// prepare fills a locked folder that is empty, and brings the record of another one up
// to date.
func (c Config) prepare() (record, error) {
	found, err := c.inspect() // again: another process may have changed it
	if err == nil && !found.complete {
		found, err = c.fill()
	}
	if err == nil {
		err = c.checkFiles()
	}
	if err != nil {
		return record{}, err
	}
	before := found
	if found.cluster == "" {
		found.cluster = c.ClusterID
	}
	if found == before {
		return found, nil
	}
	return found, found.write(c.Path)
}

// inspect reads the record of a folder, and changes no file. The record is zero if the folder
// is missing or empty. The error says why this folder can't be used with this Config.
func (c Config) inspect() (record, error) {
	found, err := readRecord(c.Path)
	switch {
	case err != nil:
		return record{}, err
	case !found.complete: // it never held an entry, so any node may have it
		return found, nil
	case found.node != c.NodeID:
		return record{}, &IdentityError{Folder: c.Path, What: "node", Found: found.node, Wanted: c.NodeID}
	case found.cluster != "" && c.ClusterID != "" && found.cluster != c.ClusterID:
		return record{}, &IdentityError{Folder: c.Path, What: "cluster", Found: found.cluster, Wanted: c.ClusterID}
	}
	return found, nil
}

// readRecord reads the record of a folder. It is zero if the folder is missing or empty.
func readRecord(folder string) (record, error) {
	content, err := os.ReadFile(filepath.Join(folder, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, checkEmpty(folder)
	}
	if err != nil {
		return record{}, fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	found, err := decodeRecord(content)
	switch {
	case err != nil && (strings.HasPrefix(string(content), recordTitle) || exists(folder, witnessFile)):
		return record{}, &damage.Error{Folder: folder, File: recordFile, Detail: err.Error()}
	case err != nil:
		return record{}, &ForeignError{Folder: folder, Found: "its file " + recordFile + " is not ours"}
	case found.format > knownFormat:
		return record{}, &NewerFormatError{Folder: folder, Found: found.format, Known: knownFormat}
	case found.format < knownFormat:
		return record{}, &OldFormatError{Folder: folder, Found: found.format}
	case !knownJournal(found.journal):
		return record{}, &NewerFormatError{Folder: folder, Found: found.format, Known: knownFormat, Journal: found.journal}
	}
	return found, nil
}

// checkEmpty makes sure that a folder is missing, or is empty.
func checkEmpty(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	if exists(folder, witnessFile) { // only written after the record, and never alone
		return &damage.Error{Folder: folder, File: recordFile, Detail: "the file is missing"}
	}
	for _, entry := range entries {
		if !slices.Contains(harmless, entry.Name()) {
			return &ForeignError{Folder: folder, Found: fmt.Sprintf("it holds %q, and no file %s", entry.Name(), recordFile)}
		}
	}
	return nil
}

// makeFolder makes a folder that is missing. The folders above it are on the disk on return;
// its own name is not, before syncName.
func makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(folder)
	if err := errors.Join(makeFolder(above), syncName(above)); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// syncName returns when the name of a folder is on the disk. It also syncs the name of an old
// folder: the program that made it may have been killed before it had synced the name.
func syncName(folder string) error {
	if err := syncFolder(filepath.Dir(folder)); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// fill creates the files of a new data folder. It writes the record with "creating", then the
// files, then the record with "complete". So after a crash at any step the next start
// recognises the folder, empties it and fills it again, and a complete folder never gets an
// empty file in place of a lost file.
func (c Config) fill() (record, error) {
	fail := func(err error) (record, error) {
		return record{}, fmt.Errorf("data folder %s can't be made: %w", c.Path, damage.AsFull(c.Path, err))
	}
	if err := syncName(c.Path); err != nil {
		return fail(err)
	}
	fresh := c.newRecord()
	if err := fresh.write(c.Path); err != nil {
		return fail(err)
	}
	for _, name := range append(c.dataFiles(), reserveFile) {
		if err := os.Remove(filepath.Join(c.Path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
	}
	for _, file := range c.Files {
		if err := file.Create(c.Path); err != nil {
			return fail(err)
		}
	}
	if err := createWitness(c.Path); err != nil {
		return fail(err)
	}
	if err := syncFolder(c.Path); err != nil {
		return fail(err)
	}
	fresh.complete = true
	if err := fresh.write(c.Path); err != nil {
		return fail(err)
	}
	c.Logger.Info("data folder made", "folder", c.Path, "node", c.NodeID, "format", knownFormat)
	return fresh, nil
}

// checkFiles makes sure that the files of a complete folder exist. bbolt would create a missing
// file, empty, and the node would forget its votes.
func (c Config) checkFiles() error {
	for _, name := range c.dataFiles() {
		info, err := os.Stat(filepath.Join(c.Path, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &damage.Error{Folder: c.Path, File: name, Detail: "the file is missing"}
		case err != nil:
			return fmt.Errorf("data folder %s can't be read: %w", c.Path, err)
		case info.Size() == 0:
			return &damage.Error{Folder: c.Path, File: name, Detail: "the file is empty"}
		}
	}
	return nil
}

// dataFiles are the files that a complete folder must have.
func (c Config) dataFiles() (names []string) {
	for _, file := range c.Files {
		names = append(names, file.Name)
	}
	return append(names, witnessFile)
}

func exists(folder, name string) bool {
	_, err := os.Stat(filepath.Join(folder, name))
	return err == nil
}

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

// The files of this package in a data folder; Config.Files has the others.
const (
	lockFile    = "lock"    // see lockFolder
	recordFile  = "FORMAT"  // see record.go
	witnessFile = "witness" // see witness.go
	reserveFile = "reserve" // see space.go; may be missing

	temporarySuffix = ".tmp"
)

// maxIDBytes bounds the ids of nodes and clusters.
const maxIDBytes = 255

// A folder counts as empty even if it contains these harmless names: the files that an interrupted start leaves before
// it has written the record, and a folder that the file system makes in the root of a volume.
var harmless = []string{lockFile, recordFile + temporarySuffix, "lost+found"}

// Config says which data folder to open. Guard and Logger are required.
type Config struct {
	Path      string // absolute; "" for a folder in memory, which has no files
	NodeID    string // required
	ClusterID string // "" if not known
	MinFree   uint64 // see Space
	Files     []File // the other files of a complete folder, in the order in which they are created
	Guard     *damage.Guard
	Logger    hclog.Logger
}

// File is a file of a data folder that another package reads and writes.
type File struct {
	Name   string
	Create func(folder string) error // for a new folder; on return all but the file's name is durable
}

// Folder is a data folder that is open and locked. Safe for concurrent use.
type Folder struct {
	config     Config
	lock       *os.File // nil in memory, like witness and reserve
	witness    *Witness
	reserve    *Reserve
	low, spent *watermark

	mu     sync.Mutex
	record record
}

// Open opens and locks a data folder. It checks that this program has made the folder in a known format, that it
// belongs to the given node, and that it is complete. It makes a missing folder, and fills an empty one. After an error
// the folder is not locked.
//
// Errors: LockedError; ForeignError, NewerFormatError, OldFormatError, IdentityError (the folder was not changed);
// damage.Error, damage.FullError, and errors of the system.
func Open(c Config) (*Folder, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Path == "" {
		inMemory := c.newRecord()
		inMemory.complete = true
		return c.newFolder(inMemory, nil, nil, nil), nil
	}
	// Inspect first, since a foreign folder must not change, and so must not get a lock file.
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
	// A process that was killed may not have synced names in the folder. Later writes rely on these names, above all on
	// the record's.
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

// check returns an error if the ids can't be stored or shown.
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

// Path returns the absolute path of the data folder, or "" in memory.
func (f *Folder) Path() string { return f.config.Path }

// Witness returns the lower bounds of what is stored; nil in memory.
func (f *Folder) Witness() *Witness { return f.witness }

// Reserve returns the reserved disk space; nil in memory.
func (f *Folder) Reserve() *Reserve { return f.reserve }

// Close closes this package's files and releases the lock. It is called once, after all other files are closed.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	return errors.Join(f.witness.close(), f.lock.Close())
}

// lockFolder locks a folder until the returned file is closed. It does not wait: if the folder is locked, it fails with
// a LockedError. It uses a kernel lock (flock) on the file "lock", which ends with the process, even in a crash. The
// file remains; its content counts only while the lock is held.
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
	// This content only tells the next process who holds the lock. So an error here, for example on a full disk, does
	// not matter.
	host, _ := os.Hostname()
	_ = file.Truncate(0)
	_, _ = file.WriteAt(fmt.Appendf(nil, "%d %q\n", os.Getpid(), host), 0)
	return file, nil
}

// lockHolder returns the process that the lock file names, if it names one.
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

// prepare fills a locked folder if it is empty, else it updates the folder's record.
func (c Config) prepare() (record, error) {
	found, err := c.inspect() // again, since another process may have changed the folder
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

// inspect reads the record of a folder, and changes no file. The record is zero if the folder is missing or empty. It
// fails if this Config can't use the folder.
func (c Config) inspect() (record, error) {
	found, err := readRecord(c.Path)
	switch {
	case err != nil:
		return record{}, err
	case !found.complete: // any node may take a folder that never held an entry
		return found, nil
	case found.node != c.NodeID:
		return record{}, &IdentityError{Folder: c.Path, What: "node", Found: found.node, Wanted: c.NodeID}
	case found.cluster != "" && c.ClusterID != "" && found.cluster != c.ClusterID:
		return record{}, &IdentityError{Folder: c.Path, What: "cluster", Found: found.cluster, Wanted: c.ClusterID}
	}
	return found, nil
}

// readRecord reads the record of a folder. The record is zero if the folder is missing or empty.
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

// checkEmpty returns an error unless the folder is missing or empty.
func checkEmpty(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	if exists(folder, witnessFile) { // the witness is only written after the record
		return &damage.Error{Folder: folder, File: recordFile, Detail: "the file is missing"}
	}
	for _, entry := range entries {
		if !slices.Contains(harmless, entry.Name()) {
			return &ForeignError{Folder: folder, Found: fmt.Sprintf("it holds %q, and no file %s", entry.Name(), recordFile)}
		}
	}
	return nil
}

// makeFolder makes a missing folder. On return all folders above it are durable. Its own name becomes durable in
// syncName.
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

// syncName makes the name of a folder durable, also of an existing folder, since the process that made it may have been
// killed before the sync.
func syncName(folder string) error {
	if err := syncFolder(filepath.Dir(folder)); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// fill creates the files of a new data folder. It writes the record with "creating", then the files, then the record
// with "complete". So after a crash in between, the next start knows that the folder is new, empties it and fills it
// again. In a complete folder, a lost file is never replaced by an empty file.
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

// checkFiles returns an error if a file of a complete folder is missing. bbolt would create an empty file in its place,
// and the node would lose its votes.
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

// dataFiles lists the files that a complete folder must have.
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

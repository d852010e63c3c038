package store

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// These say what kind of error it is, for errors.Is. Each but ErrClosed comes as
// a value of the type of similar name, which has the details, for errors.As.
var (
	// ErrLocked: another process, or another Store of this one, has the folder.
	ErrLocked = errors.New("the data folder is in use")
	// ErrForeign: the folder has content that this program didn't write.
	ErrForeign = errors.New("not a Signalbox data folder")
	// ErrNewerFormat: a newer version of this program wrote the folder.
	ErrNewerFormat = errors.New("the data folder has a newer format")
	// ErrIdentity: the folder belongs to another node or another cluster.
	ErrIdentity = errors.New("the data folder belongs to another node")
	// ErrDamaged: what is stored is not what was written.
	ErrDamaged = errors.New("damaged")
	// ErrFull: the disk has no room. What was to be written is not stored; the
	// same may be tried again when there is room.
	ErrFull = errors.New("the disk is full")
	// ErrBadEntry: an entry given to be stored doesn't match its checksum.
	// Nothing of its batch is stored, and nothing is wrong with the folder.
	ErrBadEntry = errors.New("a log entry does not match its checksum")
	// ErrClosed: the Store is closed.
	ErrClosed = errors.New("the store is closed")
)

// LockedError says who has the folder. It is an ErrLocked.
type LockedError struct {
	Folder string
	PID    int    // of the holder; 0 when it isn't known
	Host   string // of the holder, as it calls itself (containers have PIDs of their own); "" when it isn't known
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d on %q", e.PID, e.Host)
	}
	return fmt.Sprintf("data folder %s is in use by %s", e.Folder, holder)
}

// Unwrap makes it an ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// ForeignError says why a folder was not taken. It is an ErrForeign. The folder
// was not changed.
type ForeignError struct {
	Folder string
	Found  string // what was found there instead
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is not a Signalbox data folder (%s), and it was left as it is: name an empty one, or one that does not exist", e.Folder, e.Found)
}

// Unwrap makes it an ErrForeign.
func (e *ForeignError) Unwrap() error { return ErrForeign }

// NewerFormatError says which format was found. It is an ErrNewerFormat. The
// folder was not changed.
type NewerFormatError struct {
	Folder       string
	Found, Known int    // versions of the folder's format
	Journal      string // the kind of journal that the folder has, if only that is unknown
}

func (e *NewerFormatError) Error() string {
	if e.Journal != "" {
		return fmt.Sprintf("data folder %s has a journal of the kind %q, which this version of Signalbox does not know: start a newer version", e.Folder, e.Journal)
	}
	return fmt.Sprintf("data folder %s has format %d, and this version of Signalbox knows formats up to %d: start a newer version", e.Folder, e.Found, e.Known)
}

// Unwrap makes it an ErrNewerFormat.
func (e *NewerFormatError) Unwrap() error { return ErrNewerFormat }

// IdentityError says whose folder it is. It is an ErrIdentity. The folder was
// not changed.
type IdentityError struct {
	Folder        string
	What          string // "node" or "cluster"
	Found, Wanted string // the folder's id, and the one asked for
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("data folder %s belongs to %s %q, not to %q: give each node a folder of its own", e.Folder, e.What, e.Found, e.Wanted)
}

// Unwrap makes it an ErrIdentity.
func (e *IdentityError) Unwrap() error { return ErrIdentity }

// DamagedError says which file is damaged, and where. It is an ErrDamaged, and
// wraps its cause where there is one.
type DamagedError struct {
	Folder string
	File   string // inside the folder; "memory" when it wasn't read from a file
	Index  uint64 // of the log entry or snapshot; 0 when it isn't known
	Detail string
	Err    error // the cause; may be nil
}

func (e *DamagedError) Error() string {
	where := e.File
	if e.Folder != "" {
		where = e.Folder + "/" + e.File
	}
	if e.Index != 0 {
		where = fmt.Sprintf("%s at index %d", where, e.Index)
	}
	message := fmt.Sprintf("%s is damaged: %s", where, e.Detail)
	if e.Err != nil {
		message = fmt.Sprintf("%s: %v", message, e.Err)
	}
	if e.Folder == "" {
		return message
	}
	return fmt.Sprintf("%s. To rejoin the cluster: stop this node, run \"mv %s %s.damaged\" and start it again with the same flags: "+
		"the other members take it in and send it everything", message, e.Folder, e.Folder)
}

// Unwrap makes it an ErrDamaged, and gives access to its cause.
func (e *DamagedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrDamaged}
	}
	return []error{ErrDamaged, e.Err}
}

// FullError says which file found no room. It is an ErrFull, and wraps its cause.
type FullError struct {
	File string
	Err  error
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no room on the disk for %s: %v", e.File, e.Err)
}

// Unwrap makes it an ErrFull, and gives access to its cause.
func (e *FullError) Unwrap() []error { return []error{ErrFull, e.Err} }

// EntryError says which entry was refused. It is an ErrBadEntry.
type EntryError struct {
	Index  uint64
	Detail string
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("log entry %d was refused: %s", e.Index, e.Detail)
}

// Unwrap makes it an ErrBadEntry.
func (e *EntryError) Unwrap() error { return ErrBadEntry }

// isFull reports whether an error means that there is no room. Some of bbolt's
// errors hold the system's only as text (DB.grow), so the text counts too.
func isFull(err error) bool {
	if err == nil {
		return false
	}
	for _, number := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, number) || strings.Contains(err.Error(), number.Error()) {
			return true
		}
	}
	return errors.Is(err, ErrFull)
}

// asFull makes an error that means no room a FullError; others are returned as
// they are.
func asFull(file string, err error) error {
	if !isFull(err) || errors.Is(err, ErrFull) {
		return err
	}
	return &FullError{File: file, Err: err}
}

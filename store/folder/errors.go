package folder

import (
	"errors"
	"fmt"
)

// The kinds of errors, for errors.Is. An error with details has its own type, for errors.As: for example, an ErrLocked
// is a *LockedError.
var (
	// ErrLocked: another process, or another Store of this process, has the folder open.
	ErrLocked = errors.New("the data folder is in use")
	// ErrGone: the lock file of an open folder has been removed, or replaced by another file.
	ErrGone = errors.New("the data folder was deleted or replaced while the node ran")
	// ErrForeign: the folder has content that this program has not written.
	ErrForeign = errors.New("not a Signalbox data folder")
	// ErrNewerFormat: a newer version of this program wrote the folder.
	ErrNewerFormat = errors.New("the data folder has a newer format")
	// ErrOldFormat: a program before the first release wrote the folder.
	ErrOldFormat = errors.New("the data folder has a format from before the first release")
	// ErrIdentity: the folder belongs to another node or another cluster.
	ErrIdentity = errors.New("the data folder belongs to another node")
)

// LockedError names the holder of the folder. It is an ErrLocked.
type LockedError struct {
	Folder string
	PID    int    // of the holder; 0 if not known
	Host   string // host name of the holder, since each container has its own PIDs; "" if not known
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d on %q", e.PID, e.Host)
	}
	return fmt.Sprintf("data folder %s is in use by %s", e.Folder, holder)
}

// Unwrap makes e an ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// ForeignError says why a folder was refused. It is an ErrForeign. The folder was not changed.
type ForeignError struct {
	Folder string
	Found  string // what the folder contains
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is not a Signalbox data folder (%s), and it was left as it is: name an empty one, or one that does not exist", e.Folder, e.Found)
}

// Unwrap makes e an ErrForeign.
func (e *ForeignError) Unwrap() error { return ErrForeign }

// NewerFormatError says which format the folder has. It is an ErrNewerFormat. The folder was not changed.
type NewerFormatError struct {
	Folder       string
	Found, Known int    // the folder's format, and the latest format that this program knows
	Journal      string // the kind of the folder's journal, if only that kind is unknown
}

func (e *NewerFormatError) Error() string {
	if e.Journal != "" {
		return fmt.Sprintf("data folder %s has a journal of the kind %q, which this version of Signalbox does not know: start a newer version", e.Folder, e.Journal)
	}
	return fmt.Sprintf("data folder %s has format %d, and this version of Signalbox knows formats up to %d: start a newer version", e.Folder, e.Found, e.Known)
}

// Unwrap makes e an ErrNewerFormat.
func (e *NewerFormatError) Unwrap() error { return ErrNewerFormat }

// OldFormatError says which format the folder has. It is an ErrOldFormat. The folder was not changed.
type OldFormatError struct {
	Folder string
	Found  int // the folder's format
}

func (e *OldFormatError) Error() string {
	return fmt.Sprintf("data folder %s has format %d, of a program before the first release, which this version can't read: move it away, or name another one", e.Folder, e.Found)
}

// Unwrap makes e an ErrOldFormat.
func (e *OldFormatError) Unwrap() error { return ErrOldFormat }

// IdentityError says to which node or cluster the folder belongs. It is an ErrIdentity. The folder was not changed.
type IdentityError struct {
	Folder        string
	What          string // "node" or "cluster"
	Found, Wanted string // the folder's id, and the expected id
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("data folder %s belongs to %s %q, not to %q: give each node a folder of its own", e.Folder, e.What, e.Found, e.Wanted)
}

// Unwrap makes e an ErrIdentity.
func (e *IdentityError) Unwrap() error { return ErrIdentity }

package damage

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// The kinds of errors, for errors.Is. ErrDamaged comes as an [Error] and ErrFull as a [FullError], which have the
// details, for errors.As.
var (
	// ErrDamaged: a file does not hold the bytes that were written.
	ErrDamaged = errors.New("damaged")
	// ErrFull: the disk is full, and the write was not stored. The caller may try again when there is room.
	ErrFull = errors.New("the disk is full")
	// ErrClosed: the Store is closed.
	ErrClosed = errors.New("the store is closed")
)

// Error says which file is damaged, and where. It is an ErrDamaged and wraps its cause, if there is one.
type Error struct {
	Folder string
	File   string // inside the folder; "memory" for data in memory
	Index  uint64 // of the log entry or snapshot; 0 if not known
	Detail string
	Err    error // the cause; may be nil
}

func (e *Error) Error() string {
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

// Unwrap makes e an ErrDamaged and gives access to its cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrDamaged}
	}
	return []error{ErrDamaged, e.Err}
}

// FullError says for which file the disk is full. It is an ErrFull and wraps its cause.
type FullError struct {
	File string
	Err  error
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no room on the disk for %s: %v", e.File, e.Err)
}

// Unwrap makes e an ErrFull and gives access to its cause.
func (e *FullError) Unwrap() []error { return []error{ErrFull, e.Err} }

// IsFull reports whether an error means that the disk is full. It also looks at the text, since some errors of bbolt
// (DB.grow) contain the system's error only as text.
func IsFull(err error) bool {
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

// AsFull returns a FullError if err means that the disk is full, else err itself.
func AsFull(file string, err error) error {
	if !IsFull(err) || errors.Is(err, ErrFull) {
		return err
	}
	return &FullError{File: file, Err: err}
}

package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The name of an incomplete file is tempPrefix, a random part and tempSuffix.
const (
	tempPrefix = ".signalbox-"
	tempSuffix = ".part"
)

// Save makes the file of a backup, with the content that write writes. It replaces a file of that name. After an error
// there is no new file; otherwise the file is complete, verified and durable, and only its owner may read it. Save
// returns the header and the length of the file.
func Save(name string, write func(io.Writer) error) (h Header, size int64, err error) {
	return save(name, write, (*os.File).Sync)
}

// save is Save with another function to sync the file and its folder, for tests.
func save(name string, write func(io.Writer) error, sync func(*os.File) error) (h Header, size int64, err error) {
	folder := filepath.Dir(name)
	file, err := os.CreateTemp(folder, tempPrefix+"*"+tempSuffix)
	if err != nil {
		return Header{}, 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	err = write(file)
	if err == nil {
		err = sync(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return Header{}, 0, err
	}
	if h, size, err = Verify(file.Name()); err != nil {
		return Header{}, 0, fmt.Errorf("%s, as it was read again: %w", filepath.Base(name), err)
	}
	if err = os.Rename(file.Name(), name); err != nil {
		return Header{}, 0, err
	}
	return h, size, syncFolder(folder, sync)
}

// IsTemporary reports whether a file with this name was begun by Save.
func IsTemporary(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// Verify reads a whole file and checks every byte, but not the meaning of the state. It returns the header and the
// length of the file.
func Verify(name string) (Header, int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return Header{}, 0, err
	}
	defer func() { _ = file.Close() }()
	a, err := NewReader(file)
	if err == nil {
		_, err = io.Copy(io.Discard, a)
	}
	if err != nil {
		return Header{}, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return Header{}, 0, err
	}
	return a.Header(), info.Size(), nil
}

// syncFolder makes a new name in a folder durable.
func syncFolder(folder string, sync func(*os.File) error) error {
	opened, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(sync(opened), opened.Close())
}

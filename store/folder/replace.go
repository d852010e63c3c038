package folder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// The folders inside a data folder during a replacement of its content. The data folder itself can't be renamed if it
// is the root of a volume.
const (
	newFolder   = "recovery.tmp" // the new content, incomplete
	readyFolder = "recovery"     // the new content, complete: it counts, whatever else is there
	keptPrefix  = "before-"      // with the cluster's id: the old content
)

// BeginReplacement returns an empty path inside the given folder, which must be locked. The caller makes a data folder
// at the path, and calls Replace. Without Replace, the next Open of the given folder removes it.
func BeginReplacement(folder string) (path string, err error) {
	path = filepath.Join(folder, newFolder)
	return path, os.RemoveAll(path)
}

// Replace moves the data folder from BeginReplacement, complete and closed, in place of the content of the locked
// folder. It keeps the old content as a data folder at the path former. A crash before the first rename leaves the old
// content. After a crash later, the next Open, or Look with alone, finishes the replacement.
func Replace(folder string) (former string, err error) {
	return replace(folder, func() error { return nil })
}

// replace is Replace, and calls step before each change of the disk, for tests.
func replace(folder string, step func() error) (former string, err error) {
	old, err := readRecord(folder)
	if err != nil {
		return "", err
	}
	err = errors.Join(syncFolder(filepath.Join(folder, newFolder)), step())
	if err == nil {
		err = os.Rename(filepath.Join(folder, newFolder), filepath.Join(folder, readyFolder))
	}
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		return "", fmt.Errorf("data folder %s can't be replaced: %w", folder, err)
	}
	return keptFolder(folder, old), moveIn(folder, step)
}

func keptFolder(folder string, old record) string {
	return filepath.Join(folder, keptPrefix+cmp.Or(old.cluster, "recovery"))
}

// finishReplacement finishes an interrupted replacement if the new content was complete, else it removes the new
// content.
func finishReplacement(folder string) error {
	if exists(folder, readyFolder) {
		return moveIn(folder, func() error { return nil })
	}
	if !exists(folder, newFolder) {
		return nil
	}
	return os.RemoveAll(filepath.Join(folder, newFolder))
}

// moveIn moves the old files aside and the files of readyFolder into place. After an interruption it can be called
// again. It moves the record last: the folder always has a record, and so is never taken for a foreign folder.
func moveIn(folder string, step func() error) error {
	fail := func(err error) error {
		return fmt.Errorf("the recovery of data folder %s was interrupted, and is finished by its next start: %w", folder, err)
	}
	ready := filepath.Join(folder, readyFolder)
	old, err := readRecord(folder)
	if err != nil {
		return fail(err)
	}
	entries, err := os.ReadDir(ready)
	if err != nil {
		return fail(err)
	}
	m := mover{folder: folder, ready: ready, kept: keptFolder(folder, old), step: step}
	for _, entry := range entries {
		if !slices.Contains([]string{recordFile, lockFile, reserveFile}, entry.Name()) {
			m.move(entry.Name())
		}
	}
	if exists(ready, recordFile) {
		m.sync()
		m.do(func() error { return old.write(m.kept) })
		m.do(func() error { return os.Rename(filepath.Join(ready, recordFile), filepath.Join(folder, recordFile)) })
		m.sync()
	}
	m.do(func() error { return os.RemoveAll(ready) })
	if m.err != nil {
		return fail(m.err)
	}
	return nil
}

// mover makes changes to a data folder until a change fails.
type mover struct {
	folder, ready, kept string
	step                func() error
	err                 error
}

// do makes a change after the changes on which it depends.
func (m *mover) do(change func() error, needs ...func() error) {
	for _, f := range append(append(needs, m.step), change) {
		if m.err == nil {
			m.err = f()
		}
	}
}

func (m *mover) makeKept() error {
	if err := os.Mkdir(m.kept, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (m *mover) move(name string) {
	place := filepath.Join(m.folder, name)
	if exists(m.folder, name) {
		m.do(func() error { return os.Rename(place, filepath.Join(m.kept, name)) }, m.makeKept)
	}
	m.do(func() error { return os.Rename(filepath.Join(m.ready, name), place) })
}

// sync makes all names durable.
func (m *mover) sync() {
	for _, folder := range []string{m.kept, m.folder, m.ready} {
		m.do(func() error { return syncFolder(folder) }, m.makeKept)
	}
}

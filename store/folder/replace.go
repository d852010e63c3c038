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

// The folders inside a data folder whose content is replaced. The data folder itself
// may be the root of a volume, which can't be renamed.
const (
	newFolder   = "recovery.tmp" // the new content, while it is made
	readyFolder = "recovery"     // the new content, complete: it counts, whatever else is there
	keptPrefix  = "before-"      // and the id of the cluster: the content before
)

// BeginReplacement returns a path inside the given data folder, which must be locked, and
// removes what is there. The caller makes a data folder at the path, and calls Replace to put
// it in place of the given folder's content. Without Replace, the next Open removes it.
func BeginReplacement(folder string) (path string, err error) {
	path = filepath.Join(folder, newFolder)
	return path, os.RemoveAll(path)
}

// Replace puts the folder of BeginReplacement, which is closed and complete, in place of the
// content of the locked data folder. It keeps the old content, as a data folder, at the path
// former. After a crash before the first rename the old content is in force; after that rename
// the new content is, and the next Open, or Look with alone, puts it in place.
func Replace(folder string) (former string, err error) {
	return replace(folder, func() error { return nil })
}

// replace calls step before each change of the disk, for tests.
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

// finishReplacement finishes what a crash has left of a replacement, or removes it.
func finishReplacement(folder string) error {
	if exists(folder, readyFolder) {
		return moveIn(folder, func() error { return nil })
	}
	if !exists(folder, newFolder) {
		return nil
	}
	return os.RemoveAll(filepath.Join(folder, newFolder))
}

// moveIn moves the old files aside and the files of readyFolder into place. It may be
// interrupted anywhere and called again. It moves the record last: so the folder always has a
// record, and is never taken for a foreign folder.
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

// mover makes changes to a data folder until one fails.
type mover struct {
	folder, ready, kept string
	step                func() error
	err                 error
}

// do makes a change, after the changes that it needs.
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

// move puts one file in place.
func (m *mover) move(name string) {
	place := filepath.Join(m.folder, name)
	if exists(m.folder, name) {
		m.do(func() error { return os.Rename(place, filepath.Join(m.kept, name)) }, m.makeKept)
	}
	m.do(func() error { return os.Rename(filepath.Join(m.ready, name), place) })
}

// sync returns when all names are on the disk.
func (m *mover) sync() {
	for _, folder := range []string{m.kept, m.folder, m.ready} {
		m.do(func() error { return syncFolder(folder) }, m.makeKept)
	}
}

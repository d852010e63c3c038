package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// folderLock holds a data folder for this Store alone. It is a lock of the
// kernel (flock) on the file "lock", so that it ends with the process however
// that ends; the file itself stays, and what it says counts only while the lock
// is held.
type folderLock struct{ file *os.File }

// lockFolder takes the lock, at once or not at all. When someone else has it the
// error is a LockedError.
func lockFolder(folder string) (*folderLock, error) {
	path := filepath.Join(folder, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder %s can't be locked: %w", folder, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		held := lockHolder(file, folder)
		_ = file.Close()
		return nil, held
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("data folder %s can't be locked: %w", folder, err)
	}
	// Who holds it is a courtesy to the next one who tries, so failing to write
	// it (on a full disk, say) must not stop this one.
	host, _ := os.Hostname()
	_ = file.Truncate(0)
	_, _ = file.WriteAt(fmt.Appendf(nil, "%d %q\n", os.Getpid(), host), 0)
	return &folderLock{file: file}, nil
}

// lockHolder says who has the folder, as far as the lock file tells.
func lockHolder(file *os.File, folder string) *LockedError {
	held := &LockedError{Folder: folder}
	content := make([]byte, 512)
	n, _ := file.ReadAt(content, 0)
	var pid int
	var host string
	if _, err := fmt.Sscanf(string(content[:n]), "%d %q\n", &pid, &host); err == nil {
		held.PID, held.Host = pid, host
	}
	return held
}

// release gives the folder free.
func (l *folderLock) release() error { return l.file.Close() }

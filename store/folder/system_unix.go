//go:build unix

package folder

import (
	"os"

	"golang.org/x/sys/unix"
)

// errLocked is the error of lock if another lock on the file excludes it.
const errLocked = unix.EWOULDBLOCK

// lock locks a file until it is closed, exclusively (alone) or shared. It does not wait.
func lock(file *os.File, alone bool) error {
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	return unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
}

// freeBytes returns the bytes that this process may still write to the disk of a folder.
func freeBytes(folder string) (uint64, error) {
	var stat unix.Statfs_t
	err := unix.Statfs(folder, &stat)
	return uint64(stat.Bavail) * uint64(stat.Bsize), err
}

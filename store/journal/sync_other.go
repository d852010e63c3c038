//go:build !linux

package journal

// syncedWrites is 0: O_DSYNC may be no more than a hint, or be missing, so each write takes a call of Sync.
const syncedWrites = 0

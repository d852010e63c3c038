//go:build !linux

package journal

// syncFlag opens a file whose writes are synced. It is 0 here because O_DSYNC may not sync, or may not exist:
// syncedFile calls Sync after each write.
const syncFlag = 0

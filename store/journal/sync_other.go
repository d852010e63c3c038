//go:build !linux

package journal

// syncedWrites is 0 because O_DSYNC may not sync here, or may not exist: syncedFile calls Sync after each write.
const syncedWrites = 0

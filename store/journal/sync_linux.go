package journal

import "syscall"

// syncedWrites opens a file so that each write is as if fdatasync followed it, in one call.
const syncedWrites = syscall.O_DSYNC

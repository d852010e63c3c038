package journal

import "syscall"

// syncedWrites makes each write sync its data, as if fdatasync followed, in one system call.
const syncedWrites = syscall.O_DSYNC

package journal

import "syscall"

// syncFlag makes each write sync its data, as if fdatasync followed, in one system call.
const syncFlag = syscall.O_DSYNC

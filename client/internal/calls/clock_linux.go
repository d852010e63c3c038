package calls

import (
	"syscall"
	"time"
	"unsafe"
)

// The clocks of clock_gettime(2).
const (
	monotonic = 1 // stands still while the machine is suspended
	boottime  = 7 // goes on
)

var suspendedBefore = apart()

// suspended returns for how long this machine was suspended since the program began.
func suspended() time.Duration {
	if d := apart() - suspendedBefore; d >= leastSuspension {
		return d
	}
	return 0
}

// leastSuspension is more than what passes between two readings.
const leastSuspension = 50 * time.Millisecond

// apart returns how far the clocks are apart. The one that stands still is read first, so that an
// interruption between the two makes a lease end too early for a moment, and not too late.
func apart() time.Duration {
	before := read(monotonic)
	return read(boottime) - before
}

func read(clock uintptr) time.Duration {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0) // both clocks exist since Linux 2.6.39
	return time.Duration(t.Nano())
}

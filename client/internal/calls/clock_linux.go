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
	if d := apart() - suspendedBefore; d >= minSuspension {
		return d
	}
	return 0
}

// minSuspension is longer than the time between two readings.
const minSuspension = 50 * time.Millisecond

// apart returns the difference of the clocks. It reads the clock that stands still first: an interruption between the
// readings then makes a lease end too early, never too late.
func apart() time.Duration {
	before := read(monotonic)
	return read(boottime) - before
}

func read(clock uintptr) time.Duration {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0) // both clocks exist since Linux 2.6.39
	return time.Duration(t.Nano())
}

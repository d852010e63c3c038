//go:build amd64 || arm64

package hold

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unsafe"
)

// action is the kernel's sigaction; its first word is the handler.
type action [4]uint64

// sigaction returns the action of a signal, and sets it to next unless next is nil.
func sigaction(s syscall.Signal, next *action) (before action, ok bool) {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	return before, errno == 0
}

const (
	ignore      = 1 // SIG_IGN
	signalCount = 65
)

// ignoredAtStart returns the signals that this program's parent made it ignore. Go's runtime replaces the actions of
// most signals at its start, and keeps the earlier actions in the array runtime.fwdSig, which no function returns. We
// search memory for three adjacent entries of fwdSig that we have put there ourselves:
//
//  1. For three signals with adjacent numbers, which the runtime does not handle yet, we set Go's own handler, which is
//     harmless.
//  2. signal.Notify makes the runtime copy these handlers into fwdSig.
//  3. We search for three such handlers in a row, which occur only in fwdSig.
//
// If we don't find them exactly once, the result lacks the signals whose actions Go has replaced.
func ignoredAtStart() (ignored []syscall.Signal) {
	handler, ok := sigaction(syscall.SIGQUIT, nil)
	if !ok || handler[0] <= ignore {
		return nil
	}
	neighbours := []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
	for _, s := range neighbours {
		if before, _ := sigaction(s.(syscall.Signal), &handler); before[0] == ignore {
			ignored = append(ignored, s.(syscall.Signal))
		}
	}
	unheard := make(chan os.Signal, 1)
	signal.Notify(unheard, neighbours...)
	signal.Stop(unheard)
	mark := bytes.Repeat(binary.NativeEndian.AppendUint64(nil, handler[0]), len(neighbours))
	var found [][]byte
	for _, memory := range variables() {
		at := bytes.Index(memory, mark)
		if begin := at - 8*int(syscall.SIGTSTP); at >= 0 && begin >= 0 && begin+8*signalCount <= len(memory) {
			found = append(found, memory[begin:][:8*signalCount])
		}
	}
	if len(found) != 1 {
		return ignored
	}
	for s := range syscall.Signal(signalCount) {
		if binary.NativeEndian.Uint64(found[0][8*s:]) == ignore {
			ignored = append(ignored, s)
		}
	}
	return ignored
}

// variables returns copies of the memory of this program's global variables: the writable mappings of the program's
// file, and the mappings right after them.
func variables() (memory [][]byte) {
	program, _ := os.Readlink("/proc/self/exe")
	maps, _ := os.ReadFile("/proc/self/maps")
	self, err := os.Open("/proc/self/mem")
	if program == "" || err != nil {
		return nil
	}
	defer self.Close()
	end := uint64(0)
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var may string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &may); err != nil || !strings.Contains(line, program) && from != end {
			continue
		}
		end = to
		copied := make([]byte, to-from)
		if !strings.HasPrefix(may, "rw") {
			continue
		}
		if n, _ := self.ReadAt(copied, int64(from)); n == len(copied) {
			memory = append(memory, copied)
		}
	}
	return memory
}

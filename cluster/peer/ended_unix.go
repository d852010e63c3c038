//go:build unix

package peer

import (
	"errors"
	"syscall"
)

// Ended implements [Ender]. It looks at the next byte without taking it.
func (c tcpConn) Ended() (ended bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails if this side has closed it
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		ended = n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
	})
	return ended
}

//go:build unix

package peer

import (
	"errors"
	"syscall"
)

// Ended implements [Ender]. It peeks at the next byte.
func (c tcpConn) Ended() (ended bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails if this side has closed the connection
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		ended = n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
	})
	return ended
}

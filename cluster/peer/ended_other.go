//go:build !unix

package peer

// Ended reports that the end is not known before a read.
func (c tcpConn) Ended() bool { return false }

//go:build !unix

package peer

// Ended always returns false: this system shows the end of a connection only to a read.
func (c tcpConn) Ended() bool { return false }

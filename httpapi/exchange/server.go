package exchange

import (
	"net/http"
	"time"
)

// Limits of a server that net/http does not set by default, or sets higher.
const (
	// HeadTimeout is how long a client may take to send the head of a request.
	HeadTimeout = 5 * time.Second
	// HeadBytes is the limit for net/http of a request's head. net/http reads 4 KiB more, so the real limit is 16 KiB.
	HeadBytes = 16<<10 - 4<<10
	// StreamsPerConnection is how many requests may be under way on one HTTP/2 connection.
	StreamsPerConnection = 100
)

// OverHTTP2 bounds the memory of an HTTP/2 connection. By net/http's defaults a client could fill a megabyte or more
// that no handler has asked for. A client that needs more than StreamsPerConnection requests at a time opens another
// connection or waits. A reply's deadline ends its stream; timeout ends a connection from which the client does not
// read at all.
func OverHTTP2(timeout time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          StreamsPerConnection,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		WriteByteTimeout:              timeout,
	}
}

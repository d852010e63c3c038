package exchange

import (
	"net/http"
	"time"
)

// Limits of a server that net/http leaves off by default, or sets higher.
const (
	// HeadTimeout is how long a client may take to send the head of a request.
	HeadTimeout = 5 * time.Second
	// HeadBytes is the limit that net/http gets for a request's head. It reads 4 KiB beyond this limit: 16 KiB in all.
	HeadBytes = 16<<10 - 4<<10
	// StreamsPerConnection is how many requests may be under way on one connection with HTTP/2.
	StreamsPerConnection = 100
)

// OverHTTP2 bounds what one connection with HTTP/2 may take. By net/http's defaults a client could fill a megabyte or
// more that no handler has asked for. A client with StreamsPerConnection requests under way opens another connection, or
// waits. A reply's deadline ends its stream; timeout ends a connection from which the client reads no stream at all.
func OverHTTP2(timeout time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          StreamsPerConnection,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		WriteByteTimeout:              timeout,
	}
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/net/netutil"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	// shutdownTimeout is how long requests under way may go on when the proxy stops.
	shutdownTimeout = 5 * time.Second
	// writeTimeout is how long a client may take to read a part of a reply, as at a node.
	writeTimeout = 20 * time.Second
	// maxConnections bounds the connections of clients.
	maxConnections = 20_000
)

// Serve serves until ctx ends, over HTTPS if secure is not nil. It then gives the requests under way some time to
// finish, and closes the listener.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	server := &http.Server{
		Handler:                      p,
		ReadHeaderTimeout:            exchange.HeadTimeout,
		IdleTimeout:                  p.idle,
		MaxHeaderBytes:               exchange.HeadBytes,
		DisableGeneralOptionsHandler: true, // net/http's handler of OPTIONS * waits for a body without end
		TLSConfig:                    secure,
		HTTP2:                        exchange.OverHTTP2(writeTimeout),
		ErrorLog:                     p.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	l = netutil.LimitListener(l, maxConnections)
	served := make(chan error, 1)
	go func() {
		if secure != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(late) != nil { // a stream of events has no end
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// patientWriter gives each part of a reply writeTimeout.
type patientWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func newPatientWriter(w http.ResponseWriter) *patientWriter {
	return &patientWriter{w, http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) extend() {
	_ = w.connection.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails for a connection without deadlines only
}

// WriteHeader implements http.ResponseWriter.
func (w *patientWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(part []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(part)
}

// patientBody gives a client timeout to send a body. A large body gets timeout for each part.
type patientBody struct {
	io.ReadCloser
	connection *http.ResponseController
	timeout    time.Duration
	large      bool
}

func newPatientBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) io.ReadCloser {
	b := &patientBody{r.Body, http.NewResponseController(w), timeout, r.ContentLength < 0 || r.ContentLength > bodyBytes}
	b.extend()
	return b
}

func (b *patientBody) extend() {
	_ = b.connection.SetReadDeadline(time.Now().Add(b.timeout)) // fails for a connection without deadlines only
}

// Read implements io.Reader. It removes the deadline only at the end of the body. If the body is not read to its end,
// the server therefore drops the connection soon and does not wait for the rest.
func (b *patientBody) Read(part []byte) (int, error) {
	if b.large {
		b.extend()
	}
	n, err := b.ReadCloser.Read(part)
	if err == io.EOF {
		_ = b.connection.SetReadDeadline(time.Time{}) // as above
	}
	return n, err
}

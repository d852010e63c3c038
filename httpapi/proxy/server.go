package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// shutdownTimeout is how long requests under way may go on when the proxy stops.
	shutdownTimeout = 5 * time.Second
	// writeTimeout is how long a client may take to read a part of a reply, as at a node.
	writeTimeout = 20 * time.Second
	// headBytes bounds the head of a request as a node does: net/http reads 4 KiB more.
	headBytes = 12 << 10
	// idleTimeout is as long as a node's.
	idleTimeout = 2 * time.Minute
)

// Serve serves until ctx ends, over HTTPS if secure is not nil. It then lets the requests under way go on for a while,
// and closes the listener.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	server := &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: idleTimeout, MaxHeaderBytes: headBytes, TLSConfig: secure,
		ErrorLog: p.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}
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

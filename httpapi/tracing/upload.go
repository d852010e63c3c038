package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	// uploadTimeout bounds the delivery of a batch by default; OTEL_EXPORTER_OTLP_TIMEOUT changes it.
	uploadTimeout = 10 * time.Second
	// uploadPause is the pause before a batch is sent a second time; it doubles.
	uploadPause = time.Second
)

// exporter delivers batches of spans to a collector.
type exporter struct {
	url     string // the collector's
	headers map[string]string
	timeout time.Duration
	client  *http.Client
	ctx     context.Context // ends with the node
	end     context.CancelFunc
}

// newExporter returns the exporter that the variables of OTLP over HTTP ask for.
func newExporter(variable func(string) string) (e *exporter, err error) {
	e = &exporter{}
	base, err := url.Parse(variable(endpoint))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, malformed(endpoint, "a URL such as http://collector:4318")
	}
	e.url = base.JoinPath("v1", "traces").String()
	if p := variable("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, malformed("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf, the only protocol that nodes support")
	}
	if e.timeout, err = milliseconds(variable, "OTEL_EXPORTER_OTLP_TIMEOUT", uploadTimeout); err != nil {
		return nil, err
	}
	if e.headers, err = pairsOf(variable, "OTEL_EXPORTER_OTLP_HEADERS"); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if file := variable("OTEL_EXPORTER_OTLP_CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		authorities := x509.NewCertPool()
		if err == nil && !authorities.AppendCertsFromPEM(pem) {
			err = errors.New("no certificate in " + file)
		}
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	}
	e.client = &http.Client{Transport: transport}
	e.ctx, e.end = context.WithCancel(context.Background())
	return e, nil
}

// send sends a batch. If the collector can't be reached, or asks for a repeat, send tries again until its time-out, or
// until closing is closed.
func (e *exporter) send(body []byte, closing <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.timeout)
	defer cancel()
	for pause := uploadPause; ; pause *= 2 {
		again, err := e.post(ctx, body)
		if err == nil || !again {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		case <-closing:
		}
		timer.Stop()
		return err
	}
}

// post sends a batch once. again reports whether a repeat may succeed.
func (e *exporter) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for key, value := range e.headers {
		request.Header.Set(key, value)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := e.client.Do(request)
	if err != nil {
		return ctx.Err() == nil, err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, errors.New("the collector replied " + response.Status)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return false, errors.New("the collector replied " + response.Status)
	}
	return false, nil
}

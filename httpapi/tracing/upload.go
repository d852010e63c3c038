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
	"strconv"
	"strings"
	"sync"
	"time"

	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// uploadTimeout bounds the delivery of a batch, unless OTEL_EXPORTER_OTLP_TIMEOUT does.
	uploadTimeout = 10 * time.Second
	// uploadAgain is the pause before a batch is sent a second time; it doubles.
	uploadAgain = time.Second
)

// uploads delivers batches of spans to a collector. It implements otlptrace.Client, whose
// own implementation by HTTP would bring gRPC into the program.
type uploads struct {
	to      string // the collector's URL
	headers map[string]string
	timeout time.Duration
	client  *http.Client
	ctx     context.Context // ends with the node
	end     context.CancelFunc
	closing chan struct{} // closed when a batch is sent once only
	once    sync.Once
}

// newUploads reads the variables of OTLP over HTTP.
func newUploads(variable func(string) string) (*uploads, error) {
	u := &uploads{headers: map[string]string{}, timeout: uploadTimeout, closing: make(chan struct{})}
	base, err := url.Parse(variable(endpoint))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("%s: %q is not a URL such as http://collector:4318", endpoint, variable(endpoint))
	}
	u.to = base.JoinPath("v1", "traces").String()
	if p := variable("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not http/protobuf, the only one that there is here", p)
	}
	if given := variable("OTEL_EXPORTER_OTLP_TIMEOUT"); given != "" {
		ms, err := strconv.Atoi(given)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q is not a number of milliseconds", given)
		}
		u.timeout = time.Duration(ms) * time.Millisecond
	}
	for pair := range strings.SplitSeq(variable("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		key, value, found := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if found && err == nil {
			u.headers[strings.TrimSpace(key)] = plain
		} else if pair != "" { // the value may be a secret
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: it is not key=value,key=value with percent-encoded values")
		}
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
	u.client = &http.Client{Transport: transport}
	u.ctx, u.end = context.WithCancel(context.Background())
	return u, nil
}

// Start implements otlptrace.Client.
func (u *uploads) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (u *uploads) Stop(context.Context) error { return nil }

// hurry lets no batch be sent a second time.
func (u *uploads) hurry() { u.once.Do(func() { close(u.closing) }) }

// UploadTraces implements otlptrace.Client. It sends a batch again while the collector is
// not reached, or asks for that, within the time-out.
func (u *uploads) UploadTraces(ctx context.Context, spans []*wire.ResourceSpans) error {
	// TracesData has the encoding of the request of an export.
	body, err := proto.Marshal(&wire.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	for pause := uploadAgain; ; pause *= 2 {
		again, err := u.post(ctx, body)
		if err == nil || !again {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		case <-u.closing:
		}
		timer.Stop()
		return err
	}
}

// post sends a batch once. again reports whether it makes sense to send it again.
func (u *uploads) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.to, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for key, value := range u.headers {
		request.Header.Set(key, value)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := u.client.Do(request)
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

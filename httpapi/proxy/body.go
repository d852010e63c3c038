package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	// bodyBytes bounds a body that the proxy has to read. It is the largest body of an item and, by default, of a batch.
	bodyBytes = 1 << 20
	// smallBytes is the size up to which a body does not count: requests that wait have such bodies. bodiesInMemory
	// bounds how many larger bodies are in memory at a time.
	smallBytes, bodiesInMemory = 64 << 10, 256
	// bodyTimeout is how long a client may take to send a body, as at a node.
	bodyTimeout = 10 * time.Second
)

// body reads the body of a request, which then is sent from memory.
func (a *routedRequest) body() ([]byte, error) {
	if a.r.ContentLength < 0 || a.r.ContentLength > smallBytes {
		select {
		case a.reading <- struct{}{}:
			a.held = true
		default:
			return nil, exchange.LimitReached("bodies", bodiesInMemory, "The proxy has as many large bodies in memory as it takes. The request had no effect; try again.")
		}
	}
	data, err := io.ReadAll(http.MaxBytesReader(a.w, a.r.Body, bodyBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		problem := exchange.NewProblem("too-large", "The body is larger than the proxy of the cells takes.")
		problem.Limit = &large.Limit
		return nil, problem
	case err != nil && a.r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has hung up
	case err != nil:
		return nil, exchange.NewProblem("request-timeout", "The body did not arrive in time. The request had no effect.")
	}
	a.setBody(data)
	if len(data) <= smallBytes {
		a.releaseBody() // the request may wait for long
	}
	return data, nil
}

func (a *routedRequest) setBody(data []byte) {
	a.r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil } // state: of one request
	a.r.Body, _ = a.r.GetBody()
	a.r.ContentLength, a.r.TransferEncoding = int64(len(data)), nil
}

// releaseBody releases the place that the body has among bodiesInMemory.
func (a *routedRequest) releaseBody() {
	if a.held {
		a.held = false
		<-a.reading
	}
}

// members reads the body as a JSON object. For another body it returns no members: the node that gets the request
// refuses it.
func (a *routedRequest) members() (map[string]json.RawMessage, error) {
	data, err := a.body()
	if err != nil {
		return nil, err
	}
	return membersOf(data), nil
}

func membersOf(data []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	return members
}

// textOf returns a member that is a text, else "".
func textOf(member json.RawMessage) (text string) {
	if json.Unmarshal(member, &text) != nil {
		return ""
	}
	return text
}

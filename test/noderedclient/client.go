package noderedclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The refusals of the service.
var (
	// ErrUnknown is 404: no semaphore has this name.
	ErrUnknown = errors.New("semaphore not found")
	// ErrLocked is 409 at a down: no permit is left.
	ErrLocked = errors.New("semaphore locked")
)

// StatusError is any other refusal.
type StatusError struct {
	Status int
	Text   string
}

// Error returns status and text.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Text) }

// Client sends requests and repeats them, at one address after the other, when
// the connection fails or the reply says that it may help.
type Client struct {
	Addresses []string     // http://host:port, at least one
	HTTP      *http.Client // may follow redirects; the service sends no redirect
	// Key makes an Idempotency-Key for each call; nil sends no key, as clients do
	// that know the subflow only. Without a key, a repeat after a lost reply counts
	// twice, as there, and 504 (the call may have had its effect) is an error; with a
	// key, a call is repeated after 504 as well.
	Key func() string
	// Pause waits between attempts; nil: for real. It returns ctx's error.
	Pause func(ctx context.Context, d time.Duration) error
}

const (
	// timeLimit is what one attempt may take.
	timeLimit = 10 * time.Second
	// attempts and pause bound a call: half a minute and more.
	attempts = 120
	pause    = 250 * time.Millisecond
)

// state is a semaphore in a reply.
type state struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// Create makes a semaphore, and reports whether it was made: false means that the
// name is taken.
func (c *Client) Create(ctx context.Context, name string, value int64) (created bool, err error) {
	got, err := c.send(ctx, "POST", "/semaphore", state{name, value})
	switch {
	case err != nil:
		return false, err
	case got.status == http.StatusOK:
		_, err = got.value(name)
		return true, err
	case got.status == http.StatusSeeOther:
		return false, nil
	}
	return false, got.refusal()
}

// Up adds one, and returns the value after it.
func (c *Client) Up(ctx context.Context, name string) (value int64, err error) {
	return c.move(ctx, "/semaphore/up", name)
}

// Down takes one, and returns the value after it, or ErrLocked.
func (c *Client) Down(ctx context.Context, name string) (value int64, err error) {
	return c.move(ctx, "/semaphore/down", name)
}

func (c *Client) move(ctx context.Context, path, name string) (value int64, err error) {
	got, err := c.send(ctx, "POST", path, map[string]string{"name": name})
	switch {
	case err != nil:
		return 0, err
	case got.status == http.StatusOK:
		return got.value(name)
	case got.status == http.StatusConflict && got.text == "Semaphore locked":
		return 0, ErrLocked
	}
	return 0, got.refusal()
}

// Value returns the value.
func (c *Client) Value(ctx context.Context, name string) (value int64, err error) {
	got, err := c.send(ctx, "GET", "/semaphore/value/"+url.PathEscape(name), nil)
	switch {
	case err != nil:
		return 0, err
	case got.status == http.StatusOK:
		return got.value(name)
	}
	return 0, got.refusal()
}

// answer is a status with its body.
type answer struct {
	status int
	text   string
}

// value reads {"name", "value"} and checks that it is about this semaphore.
func (a answer) value(name string) (int64, error) {
	var s state
	if err := json.Unmarshal([]byte(a.text), &s); err != nil || s.Name != name {
		return 0, fmt.Errorf("an answer about another semaphore, or none: %q", a.text)
	}
	return s.Value, nil
}

func (a answer) refusal() error {
	if a.status == http.StatusNotFound && strings.EqualFold(a.text, ErrUnknown.Error()) {
		return ErrUnknown
	}
	return &StatusError{a.status, a.text}
}

// send repeats a request until it has a final reply, or ctx ends.
func (c *Client) send(ctx context.Context, method, path string, body any) (got answer, err error) {
	var encoded []byte
	if body != nil {
		if encoded, err = json.Marshal(body); err != nil {
			return got, err
		}
	}
	key := ""
	if c.Key != nil {
		key = c.Key()
	}
	for i := range attempts {
		if i > 0 {
			if err := c.pause(ctx); err != nil {
				return got, err
			}
		}
		got, err = c.once(ctx, method, c.Addresses[i%len(c.Addresses)]+path, key, encoded)
		if ctx.Err() != nil {
			return got, ctx.Err()
		}
		if err == nil && !mayHelp(got.status, key) {
			return got, nil
		}
	}
	if err == nil {
		err = got.refusal()
	}
	return got, err
}

// mayHelp reports whether a status is a reason to ask again: with a key also when
// its outcome is unknown.
func mayHelp(status int, key string) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout && key != ""
}

// once sends one request.
func (c *Client) once(ctx context.Context, method, address, key string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(text)}, err
}

func (c *Client) pause(ctx context.Context) error {
	if c.Pause != nil {
		return c.Pause(ctx, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package throttleclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrUnknownPeer is the reply 400 "Unknown peer": the peer has expired, or the
// service has lost it. Restore brings it back.
var ErrUnknownPeer = errors.New("unknown peer")

// ValueError is a reply of 400 or 409 with any other text: the request makes no
// sense. It reaches the user's code.
type ValueError struct{ Text string }

// Error is the text of the reply.
func (e *ValueError) Error() string { return e.Text }

// HTTPError is any other refusal, after all attempts. It reaches the user's code.
type HTTPError struct {
	Status int
	Text   string
}

// Error returns status and text.
func (e *HTTPError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Text) }

// Client sends single requests and repeats them as long as that may help: up to
// ten attempts, 164 s in all. Retry-After is not heeded.
type Client struct {
	BaseURL string       // without a slash at its end
	HTTP    *http.Client // its redirects and connections; there each request has a new one
	// Pause waits between attempts; nil: for real. It returns ctx's error.
	Pause func(ctx context.Context, d time.Duration) error
}

// timeLimit is what new_peer, acquire and heartbeat may take; the other requests
// have no limit.
const timeLimit = 30 * time.Second

// pauses are those between the ten attempts, in seconds.
var pauses = []time.Duration{4, 4, 4, 8, 16, 32, 32, 32, 32}

// NewPeer makes a peer that lives for a time, and returns its id.
func (c *Client) NewPeer(ctx context.Context, expiresIn time.Duration) (uint64, error) {
	got, err := c.send(ctx, timeLimit, "POST", "/new_peer", map[string]string{"expires_in": format(expiresIn)})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(got.text, 10, 64)
}

// Acquire asks for a lock, and reports whether the peer has all that it asked for.
// A blockFor or expiresIn below 0 is not sent.
func (c *Client) Acquire(ctx context.Context, peer uint64, semaphore string, count int64, blockFor, expiresIn time.Duration) (bool, error) {
	var query []string
	if expiresIn >= 0 {
		query = append(query, "expires_in="+format(expiresIn))
	}
	if blockFor >= 0 {
		query = append(query, "block_for="+format(blockFor))
	}
	path := lockPath(peer, semaphore)
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	got, err := c.send(ctx, timeLimit, "PUT", path, count)
	switch {
	case err != nil:
		return false, err
	case got.status == http.StatusOK:
		return true, nil
	case got.status == http.StatusAccepted:
		return false, nil
	}
	return false, fmt.Errorf("unexpected status %d", got.status)
}

// Restore makes a peer again that the service does not know any more.
func (c *Client) Restore(ctx context.Context, peer uint64, acquired map[string]int64, expiresIn time.Duration) error {
	_, err := c.send(ctx, 0, "POST", "/restore",
		map[string]any{"expires_in": format(expiresIn), "peer_id": peer, "acquired": acquired})
	return err
}

// Heartbeat prolongs a peer's life.
func (c *Client) Heartbeat(ctx context.Context, peer uint64, expiresIn time.Duration) error {
	_, err := c.send(ctx, timeLimit, "PUT", peerPath(peer), map[string]string{"expires_in": format(expiresIn)})
	return err
}

// Release deletes a peer with all its locks.
func (c *Client) Release(ctx context.Context, peer uint64) error {
	_, err := c.send(ctx, 0, "DELETE", peerPath(peer), nil)
	return err
}

// ReleaseLock gives one lock back.
func (c *Client) ReleaseLock(ctx context.Context, peer uint64, semaphore string) error {
	_, err := c.send(ctx, 0, "DELETE", lockPath(peer, semaphore), nil)
	return err
}

// Remainder returns the available count of a semaphore; it may be negative.
func (c *Client) Remainder(ctx context.Context, semaphore string) (int64, error) {
	got, err := c.send(ctx, 0, "GET", "/remainder?"+url.Values{"semaphore": {semaphore}}.Encode(), nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(got.text, 10, 64)
}

func peerPath(peer uint64) string { return "/peers/" + strconv.FormatUint(peer, 10) }

// lockPath quotes a name: only letters, digits and _.-~ stay as they are.
func lockPath(peer uint64, semaphore string) string {
	return peerPath(peer) + "/" + strings.ReplaceAll(url.QueryEscape(semaphore), "+", "%20")
}

// format writes a duration as that client does: in whole milliseconds.
func format(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

type reply struct {
	status int
	text   string
}

// send makes up to ten attempts, and translates the reply.
func (c *Client) send(ctx context.Context, limit time.Duration, method, path string, body any) (reply, error) {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return reply{}, err
		}
	}
	for attempt := 0; ; attempt++ {
		got, err := c.once(ctx, limit, method, path, encoded)
		if ctx.Err() != nil {
			return reply{}, ctx.Err()
		}
		if err == nil && !mayHelp(got.status) {
			return got, refusal(got)
		}
		if attempt == len(pauses) {
			if err == nil {
				err = refusal(got)
			}
			return got, err
		}
		if err := c.pause(ctx, pauses[attempt]*time.Second); err != nil {
			return reply{}, err
		}
	}
}

// once sends one request.
func (c *Client) once(ctx context.Context, limit time.Duration, method, path string, body []byte) (reply, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, method, c.BaseURL+path, strings.NewReader(string(body)))
	if err != nil {
		return reply{}, err
	}
	request.Close = true // a new connection each time
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, string(text)}, err
}

func (c *Client) pause(ctx context.Context, d time.Duration) error {
	if c.Pause != nil {
		return c.Pause(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mayHelp reports whether a status is a reason to ask again.
func mayHelp(status int) bool {
	switch status {
	case 408, 444, 499:
		return true
	case 501, 505, 506, 507, 508, 510, 511:
		return false
	}
	return status >= 500
}

// refusal is the error that a reply means to the caller, or nil.
func refusal(got reply) error {
	switch {
	case got.status == 400 && got.text == "Unknown peer":
		return ErrUnknownPeer
	case got.status == 400 || got.status == 409:
		return &ValueError{got.text}
	case got.status >= 400:
		return &HTTPError{got.status, got.text}
	}
	return nil
}

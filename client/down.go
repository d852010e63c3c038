package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Taken is what a Down took.
type Taken struct {
	Granted int64 `json:"granted"` // permits; fewer than asked for only with Partial
	Value   int64 `json:"value"`   // how many were available right after
}

// Down takes permits that nobody will own: nothing brings them back but an Up. It
// waits in the same queue as everybody, until it is granted or ctx ends, and
// exactly one taking comes of one call, however often it had to be repeated. A wait
// longer than Config.MaxWait starts again at the end of the queue.
//
// When ctx ends just as the permits are granted, they are answered, with a nil
// error: otherwise they would be lost. Else it fails with ctx's error and
// ErrUnavailable when nothing was taken; with ErrOutcomeUnknown when no node could
// be asked whether it was, within 2 s; and with the cluster's refusals.
func (c *Client) Down(ctx context.Context, name string, n int64, opts ...DownOption) (Taken, error) {
	return c.take(ctx, name, n, opts, false)
}

// TryDown is Down without waiting: ErrUnavailable if the permits, or with Partial
// any of them, can't be had now, or others wait for them.
func (c *Client) TryDown(ctx context.Context, name string, n int64, opts ...DownOption) (Taken, error) {
	return c.take(ctx, name, n, opts, true)
}

func (c *Client) take(ctx context.Context, name string, n int64, opts []DownOption, try bool) (taken Taken, err error) {
	if name == "" {
		return taken, errNoName
	}
	o := oneShot{call: semaphoreCall(http.MethodPost, name, "down"), body: map[string]any{"count": n}, try: try}
	for _, option := range opts {
		option.down(&o.call, o.body)
	}
	o.empty = func(r *reply) bool { return r.decode(&taken) == nil && taken.Granted == 0 }
	ctx, end, err := c.wait(ctx)
	if err != nil {
		return taken, err
	}
	defer end()
	r, err := c.once(ctx, &o)
	if err != nil && !gone(err) {
		late, settled := c.settle(ctx, &o)
		switch {
		case settled == nil && !o.empty(&late):
			r, err = late, nil
		case settled == nil, errors.Is(settled, ErrUnavailable):
			err = notInTime(ctx, err)
		case !errors.Is(err, ErrOutcomeUnknown):
			err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
		}
	}
	if err == nil {
		err = r.decode(&taken)
	}
	if err != nil {
		return Taken{}, fmt.Errorf("signalbox: down %s: %w", name, err)
	}
	return taken, nil
}

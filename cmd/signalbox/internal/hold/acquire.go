//go:build unix

package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/items"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/waiting"
)

const (
	// releaseWithin bounds how long Run waits for a node to confirm the release, and again until a lost hold is free.
	releaseWithin = 5 * time.Second
	// withdrawWithin bounds how long it waits for the withdrawal of a request.
	withdrawWithin = 2 * time.Second
	// maxNameBytes bounds the command's name in the session's metadata.
	maxNameBytes = 200
)

// holding is what Run holds while the command runs. It is safe for concurrent use.
type holding interface {
	watched
	// Close gives it back. If it was lost, Close returns why.
	Close(ctx context.Context) error
	// noun names it.
	noun() string
	// environment is the command's environment, NAME=VALUE, made of the inherited one, which it may change.
	environment(inherited []string) []string
}

// permits are a session's lease.
type permits struct {
	*signalbox.Session
	lease *signalbox.Lease
}

func (p *permits) Lost() <-chan struct{} { return p.lease.Lost() }

func (p *permits) Err() error { return p.lease.Err() }

func (p *permits) noun() string { return "lease" }

// environment has no slots of an outer run: a command without slots must not use them.
func (p *permits) environment(inherited []string) []string {
	environment := slices.DeleteFunc(inherited, func(variable string) bool {
		return strings.HasPrefix(variable, "SIGNALBOX_SLOTS=") || strings.HasPrefix(variable, "SIGNALBOX_SLOT=")
	})
	if slots := p.lease.Slots(); len(slots) > 0 {
		environment = append(environment, "SIGNALBOX_SLOTS="+cli.FormatSlots(slots), "SIGNALBOX_SLOT="+cli.FormatSlots(slots[:1]))
	}
	return append(environment, "SIGNALBOX_SEMAPHORE="+p.lease.Semaphore, "SIGNALBOX_GROUP="+p.lease.Group, "SIGNALBOX_SESSION="+p.lease.Session,
		tokenVariable(p.lease.Token))
}

// tokenVariable has the fencing token.
func tokenVariable(token uint64) string { return "SIGNALBOX_TOKEN=" + strconv.FormatUint(token, 10) }

// leadership is an item.
type leadership struct{ *items.Leadership }

// Close resigns.
func (l leadership) Close(ctx context.Context) error { return l.Resign(ctx) }

func (l leadership) noun() string { return "leadership" }

func (l leadership) environment(inherited []string) []string {
	return append(inherited, "SIGNALBOX_ITEM="+l.Name, "SIGNALBOX_SESSION="+l.Session, tokenVariable(l.Token))
}

// acquired is the outcome of open.
type acquired struct {
	held holding
	err  error
}

// acquire waits for the permits, or to lead. The first signal that asks to end withdraws the request, the second one
// makes acquire return before the withdrawal is confirmed.
func (h *Holder) acquire(ctx context.Context) (holding, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan acquired, 1)
	go func() { done <- h.open(ctx) }()
	stopSignal := syscall.Signal(0)
	for {
		select {
		case s := <-h.Signals:
			if !asksToEnd(s) {
				continue // there is no command yet to relay it to
			}
			if stopSignal != 0 {
				return nil, interrupted(stopSignal)
			}
			stopSignal = s.(syscall.Signal)
			cancel()
		case got := <-done:
			if stopSignal == 0 {
				return got.held, h.refused(got.err)
			}
			if got.err == nil {
				h.release(context.WithoutCancel(ctx), got.held)
			}
			return nil, interrupted(stopSignal)
		}
	}
}

func asksToEnd(s os.Signal) bool {
	return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 && s != syscall.SIGWINCH
}

func interrupted(s syscall.Signal) error {
	return &cli.ExitError{Status: cli.StatusSignal + int(s), Err: fmt.Errorf("ended by a signal (%v) before the command began", s)}
}

// open makes the semaphore if Config asks for it, opens a session and acquires. If a session is lost during the wait,
// another session waits in its place, at the end of the line.
func (h *Holder) open(ctx context.Context) acquired {
	if h.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Wait)
		defer cancel()
	}
	session := signalbox.SessionOptions{TTL: h.TTL, Margin: h.Grace + h.margin, Metadata: map[string]string{"command": plain(filepath.Base(h.Command[0]))}}
	if h.Anonymous {
		session.Metadata = nil
	}
	if h.Elect {
		defer waiting.Show(ctx, h.Terminal, h.leader)()
		led, err := items.New(h.client).Elect(ctx, h.Name, []byte(h.Value), session)
		return acquired{leadership{led}, err}
	}
	if h.Create {
		if _, _, err := h.client.Create(ctx, h.Name, h.Permits); err != nil {
			return acquired{err: err}
		}
	}
	warned := h.warnOfConsul(ctx)
	defer warned()
	for {
		s, err := h.client.OpenSession(ctx, session)
		if err != nil {
			return acquired{err: err}
		}
		showOwn := waiting.For(h.client, h.Name, h.Count, func(w *signalbox.Waiter) bool { return w.Session == s.ID() })
		acquire := s.Acquire
		if h.Wait == 0 {
			acquire = s.TryAcquire
		}
		stop := waiting.Show(ctx, h.Terminal, showOwn)
		lease, err := acquire(ctx, h.Name, signalbox.Count(h.Count), signalbox.Group(h.Group), signalbox.HeadStart(h.HeadStart))
		stop()
		if err == nil {
			return acquired{held: &permits{s, lease}}
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWithin)
		_ = s.Close(end) // err says more
		cancel()
		if ctx.Err() != nil || h.Wait == 0 || !errors.Is(err, signalbox.ErrLost) || errors.Is(err, signalbox.ErrRevoked) {
			return acquired{err: err}
		}
	}
}

// leader is the text on the terminal while this process waits to lead.
func (h *Holder) leader(ctx context.Context) (string, error) {
	item, err := items.New(h.client).Get(ctx, h.Name)
	if err != nil || !item.Held {
		return "waiting to lead " + h.Name, err
	}
	return fmt.Sprintf("waiting to lead %s: %q leads (session %s)", h.Name, item.Value, item.Session), nil
}

// warnOfConsul warns of clients of Consul's interface that share a name with the semaphore, and not its permits. It
// reads while the permits are acquired; the caller calls end.
func (h *Holder) warnOfConsul(ctx context.Context) (end func()) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lock, err := items.New(h.client).Get(ctx, h.Name+"/.lock")
		if err == nil && (lock.Held || namesHolders(lock.Value)) {
			h.Log.Warn("clients of Consul's interface use this name; they do not share its permits", "item", lock.Name)
		}
	}()
	return func() {
		late := time.AfterFunc(warnWithin, cancel)
		<-done
		late.Stop()
		cancel()
	}
}

// warnWithin bounds how long a command waits for that read.
const warnWithin = 200 * time.Millisecond

// namesHolders reports whether the value of a lock of Consul's semaphores has holders: an object
// or a list of their sessions.
func namesHolders(value []byte) bool {
	var lock struct{ Holders json.RawMessage }
	var byID map[string]json.RawMessage
	var list []string
	_ = json.Unmarshal(value, &lock) // a value of another form has no holders
	return json.Unmarshal(lock.Holders, &byID) == nil && len(byID) > 0 || json.Unmarshal(lock.Holders, &list) == nil && len(list) > 0
}

// plain removes the characters that metadata may not have, and shortens the text.
func plain(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxNameBytes {
		text = strings.ToValidUTF8(text[:maxNameBytes], "")
	}
	return text
}

// refused gives a failure to acquire its exit status. A failure without a status counts as StatusUnavailable,
// since the status 1 of run is mostly its command's.
func (h *Holder) refused(err error) error {
	status := cli.StatusOf(err)
	switch {
	case err == nil:
		return nil
	case status == cli.StatusNotInTime && errors.Is(err, signalbox.ErrUnavailable):
		err = fmt.Errorf("%d of %s were not free within %v", h.Count, h.Name, h.Wait)
	case status == cli.StatusFailed && h.Elect && errors.Is(err, context.DeadlineExceeded):
		status, err = cli.StatusNotInTime, fmt.Errorf("another process led %s for longer than %v", h.Name, h.Wait)
	case status == cli.StatusFailed:
		status = cli.StatusUnavailable
	}
	return &cli.ExitError{Status: status, Err: err}
}

// release gives everything back, and returns why the session was lost, if it was. A release that no node confirms is
// only logged: the session ends when its ttl is over.
func (h *Holder) release(ctx context.Context, held holding) (lost error) {
	err := h.withinBound(ctx, held.Close)
	switch {
	case errors.Is(err, signalbox.ErrLost):
		return err
	case err != nil:
		h.Log.Warn("the release was not confirmed; the session ends with its ttl, and \"signalbox lost\" lists what then stays away", "name", h.Name, "within", h.TTL, "error", err)
	}
	return nil
}

// freeLost brings back what a lost lease held, where the semaphore keeps that away from other clients: the command has
// ended. It first ends the session, which may still live if the release was not confirmed: there is no lost hold before.
func (h *Holder) freeLost(ctx context.Context, p *permits) {
	err := h.withinBound(ctx, func(ctx context.Context) error {
		_ = operator.New(h.client).EndSession(ctx, p.lease.Session) // if it is over, or no node replies, FreeLost says more
		return h.client.FreeLost(ctx, h.Name, p.lease.Token, "its command has ended")
	})
	switch {
	case errors.Is(err, signalbox.ErrNotLost), errors.Is(err, signalbox.ErrUnknownSemaphore):
	case err != nil:
		h.Log.Warn("the permits of the lost lease may stay away: \"signalbox lost\" lists them, and \"signalbox free\" brings them back",
			"name", h.Name, "token", p.lease.Token, "error", err)
	default:
		h.Log.Warn("the command has ended, so that the permits of the lost lease are free again", "name", h.Name, "token", p.lease.Token)
	}
}

// withinBound calls a function with a ctx that ends after releaseWithin, or with a signal that asks to end.
func (h *Holder) withinBound(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for {
		select {
		case s := <-h.Signals:
			if asksToEnd(s) {
				cancel()
			}
		case err := <-done:
			return err
		}
	}
}

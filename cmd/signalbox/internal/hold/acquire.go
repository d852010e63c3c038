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
	// releaseWithin bounds the wait until a node confirms the release, and then the wait until FreeLost has succeeded.
	releaseWithin = 5 * time.Second
	// withdrawWithin bounds the wait until a node confirms that a request is withdrawn.
	withdrawWithin = 2 * time.Second
	// maxNameBytes bounds the length of the command's name in the session's metadata.
	maxNameBytes = 200
)

// holding is what Run holds while the command runs: permits or leadership. Safe for concurrent use.
type holding interface {
	watched
	// Close releases it. If it was lost, Close returns the reason.
	Close(ctx context.Context) error
	// noun names it in messages.
	noun() string
	// environment returns the environment of the command, NAME=VALUE. It may change inherited.
	environment(inherited []string) []string
}

// permits are held by a session's lease.
type permits struct {
	*signalbox.Session
	lease *signalbox.Lease
}

func (p *permits) Lost() <-chan struct{} { return p.lease.Lost() }

func (p *permits) Err() error { return p.lease.Err() }

func (p *permits) noun() string { return "lease" }

// environment removes the slots of an outer run, which the command must not use.
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

func tokenVariable(token uint64) string { return "SIGNALBOX_TOKEN=" + strconv.FormatUint(token, 10) }

// leadership is a held item that makes this process the leader.
type leadership struct{ *items.Leadership }

func (l leadership) Close(ctx context.Context) error { return l.Resign(ctx) }

func (l leadership) noun() string { return "leadership" }

func (l leadership) environment(inherited []string) []string {
	return append(inherited, "SIGNALBOX_ITEM="+l.Name, "SIGNALBOX_SESSION="+l.Session, tokenVariable(l.Token))
}

type acquired struct {
	held holding
	err  error
}

// acquire waits for the permits or for leadership. The first signal that asks to end withdraws the request. After a
// second such signal, acquire returns before the withdrawal is confirmed.
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
				continue // don't relay the signal, since the command has not started
			}
			if stopSignal != 0 {
				return nil, interrupted(stopSignal)
			}
			stopSignal = s.(syscall.Signal)
			cancel()
		case got := <-done:
			if stopSignal == 0 {
				return got.held, h.refused(got.err, func() string { return waiting.Pause(ctx, h.client, h.Name) })
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

// open creates the semaphore if Config says so, opens a session and acquires. If the session is lost during the wait,
// another session waits, at the end of the line.
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
		_ = s.Close(end) // err says why open failed, which is more useful
		cancel()
		if ctx.Err() != nil || h.Wait == 0 || !errors.Is(err, signalbox.ErrLost) || errors.Is(err, signalbox.ErrRevoked) {
			return acquired{err: err}
		}
	}
}

// leader returns the text that the terminal shows while this process waits to lead.
func (h *Holder) leader(ctx context.Context) (string, error) {
	item, err := items.New(h.client).Get(ctx, h.Name)
	if err != nil || !item.Held {
		return "waiting to lead " + h.Name, err
	}
	return fmt.Sprintf("waiting to lead %s: %q leads (session %s)", h.Name, item.Value, item.Session), nil
}

// warnOfConsul warns if clients of Consul's interface use a semaphore of the same name, since their permits are counted
// separately. It checks in the background; the caller calls end.
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

// warnWithin bounds how long the command's start waits for warnOfConsul.
const warnWithin = 200 * time.Millisecond

// namesHolders reports whether the lock of a Consul semaphore names holders: an object or a list of their sessions.
func namesHolders(value []byte) bool {
	var lock struct{ Holders json.RawMessage }
	var byID map[string]json.RawMessage
	var list []string
	_ = json.Unmarshal(value, &lock) // an error means that there are no holders
	return json.Unmarshal(lock.Holders, &byID) == nil && len(byID) > 0 || json.Unmarshal(lock.Holders, &list) == nil && len(list) > 0
}

// plain shortens a text and removes characters that metadata may not have.
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

// refused returns a failure to acquire with its exit status. The default is StatusUnreachable rather than 1, since
// "signalbox run" returns 1 mostly because the command did. pause returns what Pause of package waiting does.
func (h *Holder) refused(err error, pause func() string) error {
	status := cli.StatusOf(err)
	switch {
	case err == nil:
		return nil
	case status == cli.StatusNotGranted && errors.Is(err, signalbox.ErrUnavailable):
		err = fmt.Errorf("%d of %s were not free within %v%s", h.Count, h.Name, h.Wait, pause())
	case status == cli.StatusFailed && h.Elect && errors.Is(err, context.DeadlineExceeded):
		status, err = cli.StatusNotGranted, fmt.Errorf("another process led %s for longer than %v", h.Name, h.Wait)
	case status == cli.StatusFailed:
		status = cli.StatusUnreachable
	}
	return &cli.ExitError{Status: status, Err: err}
}

// release releases everything, and returns the reason if the session was lost. If no node confirms the release, it only
// logs that, since the session ends after its ttl.
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

// freeLost frees the permits of a lost lease if the semaphore keeps them away from other clients. This is safe because
// the command has ended. It first ends the session: if the release was not confirmed, the session may be alive, and its
// lease not lost yet.
func (h *Holder) freeLost(ctx context.Context, p *permits) {
	err := h.withinBound(ctx, func(ctx context.Context) error {
		_ = operator.New(h.client).EndSession(ctx, p.lease.Session) // ignore the error: FreeLost fails if the session has not ended
		return h.client.FreeLost(ctx, h.Name, p.lease.Token, "its command has ended")
	})
	switch {
	case errors.Is(err, signalbox.ErrNotLost), errors.Is(err, signalbox.ErrUnknownSemaphore):
	case err != nil:
		h.Log.Warn("the permits of the lost lease may stay away: \"signalbox lost\" lists them, and \"signalbox free\" brings them back",
			"name", h.Name, "token", p.lease.Token, "error", err)
	default:
		h.Log.Warn("the command has ended, so the permits of the lost lease are free again", "name", h.Name, "token", p.lease.Token)
	}
}

// withinBound calls do with a ctx that ends after releaseWithin, or at a signal that asks to end.
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

//go:build unix

package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// TestRefusedStatus: a failed wait has the same exit status as in every other command. A failure that has no status in
// other commands has a status of run.
func TestRefusedStatus(t *testing.T) {
	late := fmt.Errorf("elect db: %w", context.DeadlineExceeded)
	for _, c := range []struct {
		name  string
		elect bool
		err   error
		want  int
		words string
	}{
		{"lost", false, fmt.Errorf("%w: %w", signalbox.ErrLost, signalbox.ErrNotRenewed), cli.StatusLost, "not renewed in time"},
		{"lost, since no node replied", false, fmt.Errorf("%w: %w", signalbox.ErrLost, signalbox.ErrUnreachable), cli.StatusLost, "no node replied"},
		{"revoked", false, fmt.Errorf("%w: %w", signalbox.ErrLost, &signalbox.Error{Status: 410, Code: "revoked"}), cli.StatusLost, "revoked"},
		{"not in time", false, fmt.Errorf("%w: %w", context.DeadlineExceeded, signalbox.ErrUnavailable), cli.StatusNotGranted, "2 of db were not free within 5s: db is paused"},
		{"superseded", false, &signalbox.Error{Status: 409, Code: "superseded"}, cli.StatusNotGranted, "409 superseded"},
		{"not leading in time", true, late, cli.StatusNotGranted, "another process led db for longer than 5s"},
		{"no node leading in time", true, fmt.Errorf("%w: %w", late, signalbox.ErrUnreachable), cli.StatusUnreachable, "no node replied"},
		{"refused", false, &signalbox.Error{Status: 409, Code: "never"}, cli.StatusRefused, "never"},
		{"late without a reason", false, late, cli.StatusUnreachable, "deadline"},
		{"unreadable", false, errors.New("a node's reply can't be read"), cli.StatusUnreachable, "can't be read"},
	} {
		h := &Holder{Config: Config{Name: "db", Count: 2, Wait: 5 * time.Second, Elect: c.elect}}
		if err := h.refused(c.err, func() string { return ": db is paused" }); cli.StatusOf(err) != c.want || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: status %d, not %d: %v", c.name, cli.StatusOf(err), c.want, err)
		}
	}
	if err := new(Holder).refused(nil, nil); err != nil {
		t.Errorf("acquired: %v", err)
	}
}

// silence is a network that carries no bytes.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// unconfirmed is a holding whose end no node confirms.
type unconfirmed struct{ holding }

func (unconfirmed) Close(context.Context) error { return signalbox.ErrUnreachable }

// TestElectSpeaksOfNoPermits: if both run and elect print a text, the text does not speak of permits.
func TestElectSpeaksOfNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		signals := make(chan os.Signal, 2)
		h := newHolder(t, Config{Name: "svc/leader", Elect: true, Command: []string{"actor"}, Count: 1, TTL: 30 * time.Second, Wait: time.Minute,
			Cluster: signalbox.Config{Addresses: []string{"n1"}, HTTPClient: &http.Client{Transport: silence{}}},
			Log:     slog.New(slog.NewTextHandler(&log, nil)), Signals: signals, begin: new(actor).begin})
		signals <- syscall.SIGTERM
		err := h.Run(t.Context())
		if cli.StatusOf(err) != cli.StatusSignal+15 {
			t.Errorf("interrupted: %v", err)
		}
		if lost := h.release(t.Context(), unconfirmed{}); lost != nil || !strings.Contains(log.String(), "not confirmed") {
			t.Errorf("%v; logged %s", lost, log.String())
		}
		for _, word := range []string{"permit", " lease", "semaphore"} {
			if text := err.Error() + "; " + log.String(); strings.Contains(text, word) {
				t.Errorf("it speaks of a %s: %s", word, text)
			}
		}
		_ = h.client.Close(t.Context())
	})
}

func TestRunMetadataIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"make":                         "make",
		"a\x00b\nc":                    "a b c",
		"\xff":                         "?",
		strings.Repeat("é", 101):       strings.Repeat("é", 100),
		"x" + strings.Repeat("é", 100): "x" + strings.Repeat("é", 99),
	} {
		if got := plain(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}

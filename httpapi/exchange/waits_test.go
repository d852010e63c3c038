package exchange

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// TestWaits: watchers count until they are removed, and end with the server.
func TestWaits(t *testing.T) {
	w := newWaits(1, Rights{})
	c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "watchers"})
	remove, err := w.AddWatcher(c, gauge)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddWatcher(c, gauge); ProblemOf(err).Rule != "watchers" {
		t.Errorf("a second watcher: %v", err)
	}
	remove()
	if _, err := w.AddWatcher(c, gauge); err != nil {
		t.Errorf("after the first is removed: %v", err)
	}
	if w.Closed() {
		t.Error("closed before the end")
	}
	w.end()
	w.end()
	<-w.Closing()
	end, err := w.TakeTurn(t.Context(), time.Hour)
	if !w.Closed() || err != nil {
		t.Errorf("after the end: closed %v, a turn: %v", w.Closed(), err)
	}
	end()
}

package exchange

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/labstack/echo/v4"
)

// TestIndexOfReplies: if a reply's index is set several times, the highest index counts. SetHighestIndex sets the
// highest index of all replies.
func TestIndexOfReplies(t *testing.T) {
	r := &Replies{memory: newReplyMemory(0), log: hclog.NewNullLogger()}
	newContext := func() echo.Context {
		return echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
	}
	first, second := newContext(), newContext()
	r.SetIndex(first, 7)
	r.SetIndex(first, 5)
	r.SetHighestIndex(second)
	for _, c := range []echo.Context{first, second} {
		if index := c.Response().Header().Get(HeaderIndex); index != "7" {
			t.Errorf("index %s", index)
		}
	}
}

// TestProblemsAreLogged: a fault of this program is in the log, once, and its reply does not show it.
func TestProblemsAreLogged(t *testing.T) {
	var log strings.Builder
	r := &Replies{memory: newReplyMemory(0), log: hclog.New(&hclog.LoggerOptions{Output: &log})}
	w := httptest.NewRecorder()
	c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), w)
	r.SendProblem(c, errors.New("secret"))
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || strings.Count(log.String(), "secret") != 1 {
		t.Errorf("%d %s, logged: %s", w.Code, w.Body, &log)
	}
	if r.SendProblem(c, ErrInternal); strings.Count(log.String(), "request failed") != 1 {
		t.Errorf("a fault that is logged already is logged again: %s", &log)
	}
}

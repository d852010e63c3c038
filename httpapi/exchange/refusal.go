package exchange

import (
	"cmp"

	"github.com/labstack/echo/v4"
)

// PlainText is the Content-Type of a text.
const PlainText = "text/plain; charset=utf-8"

// Refusal is a refusal in the form of a dialect: a status and a plain text.
type Refusal struct {
	Status      int
	ContentType string // "": the reply has no Content-Type
	Text        string
	RetryAfter  string // seconds; "": no Retry-After
}

// Error returns the text.
func (e *Refusal) Error() string { return e.Text }

// Sentence returns a refusal of one sentence, as text/plain.
func Sentence(status int, text string) *Refusal {
	return &Refusal{Status: status, ContentType: PlainText, Text: text}
}

// Retry is Sentence with a Retry-After, for a request that its client should repeat; retryAfter "" means 1 s.
func Retry(status int, text, retryAfter string) *Refusal {
	return &Refusal{Status: status, ContentType: PlainText, Text: text, RetryAfter: cmp.Or(retryAfter, "1")}
}

// SendRefusal sends the text of a refusal unchanged.
func (r *Replies) SendRefusal(c echo.Context, e *Refusal) error {
	if e.RetryAfter != "" {
		c.Response().Header().Set("Retry-After", e.RetryAfter)
	}
	return r.Send(c, e.Status, e.ContentType, []byte(e.Text))
}

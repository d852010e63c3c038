package httpapi

import (
	"fmt"

	"github.com/signalbox/signalbox/fsm"
)

// blockedBody tells why a request waits: a code, a sentence for people, and
// the first shownObstacles of the lines in which it can't be served now.
type blockedBody struct {
	BlockedBy     string         `json:"blocked_by"`
	Reason        string         `json:"reason"`
	Obstacles     []obstacleBody `json:"obstacles"`
	ObstacleCount int            `json:"obstacle_count"` // of all
}

// shownObstacles bounds what one waiting request adds to a reply: it may wait in
// many lines, each with a long name.
const shownObstacles = 8

type obstacleBody struct {
	Semaphore string `json:"semaphore"`
	BlockedBy string `json:"blocked_by"`
	Needs     int64  `json:"needs"`
	Available int64  `json:"available"`
}

// bytes is about how much text it is.
func (b *blockedBody) bytes() int {
	n := len(b.Reason)
	for i := range b.Obstacles {
		n += memberBytes + len(b.Obstacles[i].Semaphore)
	}
	return n
}

// newBlockedBody tells why a request waits in the line of a semaphore.
func newBlockedBody(w *fsm.RequestView, name string) blockedBody {
	shown := min(len(w.Obstacles), shownObstacles)
	body := blockedBody{BlockedBy: w.BlockedBy.String(), Obstacles: make([]obstacleBody, shown), ObstacleCount: len(w.Obstacles)}
	for i, o := range w.Obstacles {
		if i < shown {
			body.Obstacles[i] = obstacleBody{Semaphore: o.Semaphore, BlockedBy: o.BlockedBy.String(), Needs: o.Needs, Available: o.Available}
		}
		if o.Semaphore == name && w.BlockedBy == fsm.BlockPermits {
			body.Reason = tooFew(w, o)
		}
	}
	switch w.BlockedBy {
	case fsm.BlockAhead:
		body.Reason = "The one before it in the line comes first."
		if ahead := w.Position - 1; ahead > 1 {
			body.Reason = fmt.Sprintf("%d before it in the line come first.", ahead)
		}
	case fsm.BlockOther:
		body.Reason = "It waits for the other semaphores of its list, see obstacles."
		if len(w.Obstacles) == 1 {
			body.Reason = fmt.Sprintf("It waits for %q, another semaphore of its list.", w.Obstacles[0].Semaphore)
		}
	}
	return body
}

// tooFew says what the head of a line needs.
func tooFew(w *fsm.RequestView, o fsm.Obstacle) string {
	switch {
	case o.Available < 0:
		return fmt.Sprintf("It needs %d, and %d more are held than there are permits.", o.Needs, -o.Available)
	case w.Partial:
		return "Nothing is available."
	}
	return fmt.Sprintf("It needs %d, %d available.", o.Needs, o.Available)
}

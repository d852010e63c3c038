package reads

import (
	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// LostBody is a lost hold: the permits of a lease that was lost.
type LostBody struct {
	Token    uint64         `json:"token"`
	Session  string         `json:"session"`
	Group    string         `json:"group,omitempty"`
	Count    int64          `json:"count"`
	Slots    exchange.Slots `json:"slots,omitempty"`
	LostMS   int64          `json:"lost_ms"`    // the time since the loss
	BackInMS *int64         `json:"back_in_ms"` // the time until the permits return; null: only when somebody frees them
	Metadata exchange.Pairs `json:"metadata"`
}

// LostHoldsBody is a page of the lost holds of a semaphore.
type LostHoldsBody struct {
	Lost []LostBody `json:"lost"`
	Next *string    `json:"next"`
}

func viewedLost(l *fsm.LostView, nowMS int64, id *access.Identity) LostBody {
	sinceLoss := Left(nowMS, l.LostMS) // the time from the loss until now
	body := LostBody{Token: l.Token, Group: l.Group, Count: l.Count, Slots: l.Slots, LostMS: sinceLoss, Metadata: l.Metadata}
	if id.SeesID(l.Owner) {
		body.Session = exchange.FormatSession(l.Session)
	}
	if l.DueMS != fsm.NeverMS {
		left := Left(l.DueMS, nowMS)
		body.BackInMS = &left
	}
	return body
}

func (api *API) listLost(c echo.Context, q exchange.Query) error {
	return listOfPart(api, c, q, func(cursor string) (uint64, error) { return parseNumberCursor(cursorLost, cursor) }, pageOfLost)
}

// pageOfLost returns up to limit of the lost holds of a semaphore after a token, sorted by token. It returns fewer if
// they have more than pageBytes.
func pageOfLost(m *fsm.Machine, scope part, after uint64, limit int, nowMS int64, id *access.Identity) LostHoldsBody {
	body, bytes := LostHoldsBody{Lost: []LostBody{}}, 0
	found := m.Lost(scope.name, after, limit+1)
	for i := range found {
		bytes += memberBytes + pairBytes(found[i].Metadata) + slotBytes(found[i].Slots)
		if i == limit || i > 0 && bytes > pageBytes {
			body.Next = numberCursor(cursorLost, found[i-1].Token)
			break
		}
		body.Lost = append(body.Lost, viewedLost(&found[i], nowMS, id))
	}
	return body
}

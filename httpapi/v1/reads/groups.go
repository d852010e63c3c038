package reads

import (
	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// GroupBody is a group of a semaphore.
type GroupBody struct {
	Group        string `json:"group"`
	Limit        *int64 `json:"limit"`
	Own          bool   `json:"own"` // the limit is the group's own
	Used         int64  `json:"used"`
	Held         int64  `json:"held"`
	Waiting      int64  `json:"waiting"`
	OldestWaitMS int64  `json:"oldest_wait_ms"`
	GroupsBefore int64  `json:"groups_before"` // of a pool, before its first request
}

// GroupsBody is a page of the groups of a semaphore.
type GroupsBody struct {
	Groups []GroupBody `json:"groups"`
	Next   *string     `json:"next"`
}

func viewedGroup(g *fsm.GroupView, nowMS int64) GroupBody {
	body := GroupBody{Group: g.Group, Limit: exchange.LimitOf(g.Limit), Own: g.Own, Used: g.Used, Held: g.Held, Waiting: g.Waiting, GroupsBefore: g.Ahead}
	if g.Waiting > 0 {
		body.OldestWaitMS = Left(nowMS, g.OldestMS)
	}
	return body
}

func (api *API) listGroups(c echo.Context, q exchange.Query) error {
	return listOfPart(api, c, q, parseGroupCursor, pageOfGroups)
}

// pageOfGroups returns up to limit of the groups of a semaphore from a name on, sorted by name. A page may be short,
// since pageOfGroups reads a bounded number of groups.
func pageOfGroups(m *fsm.Machine, scope part, from string, limit int, nowMS int64, _ *access.Identity) GroupsBody {
	body := GroupsBody{Groups: []GroupBody{}}
	found, next, more := m.Groups(scope.name, from, scope.waiting, limit)
	for i := range found {
		body.Groups = append(body.Groups, viewedGroup(&found[i], nowMS))
	}
	if more {
		body.Next = groupCursor(next)
	}
	return body
}

func (api *API) getGroup(c echo.Context, q exchange.Query) error {
	name, epoch, err := api.readSemaphore(c, q)
	if err != nil {
		return err
	}
	text, _ := exchange.PathParam(c, "group")
	group, err := exchange.GroupSegment("group", text)
	if err != nil {
		return err
	}
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		if _, err := findSemaphore(m, name, epoch); err != nil {
			return nil, err
		}
		found, ok := m.Group(name, group)
		if !ok {
			return nil, noGroup(name, group)
		}
		return viewedGroup(&found, nowMS), nil
	})
}

func noGroup(name, group string) error {
	p := exchange.NewProblem("unknown-group", "No lease and no request of the semaphore names this group, and it has no limit of its own.")
	p.Semaphore, p.Group = name, group
	return p
}

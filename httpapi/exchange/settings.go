package exchange

import (
	"strings"

	"github.com/signalbox/signalbox/fsm"
)

// GroupForm is the refusal of a text that can't be the name of a group.
const GroupForm = "The name of a group is up to 128 bytes of UTF-8 without control characters."

// GroupName checks the name of a group from a query or a body.
func GroupName(field, name string) (string, error) {
	if !fsm.ValidGroup(name) {
		return "", Invalid(field, GroupForm)
	}
	return name, nil
}

// GroupSegment reads the name of a group from a segment of a path. Since no segment is empty, the
// empty group is "-", and a group that begins with "-" has another "-" before it.
func GroupSegment(field, segment string) (string, error) {
	name, marked := strings.CutPrefix(segment, "-")
	if segment == "" || marked && name != "" && name[0] != '-' {
		return "", Invalid(field, `In a path the empty group is "-", and a group that begins with "-" has another "-" before it.`)
	}
	return GroupName(field, name)
}

// Values of the setting when_full.
const (
	Refuse     = "refuse"
	DropOldest = "drop-oldest"
)

// SettingsBody has the optional settings of a semaphore that are set.
type SettingsBody struct {
	Groups      string `json:"groups,omitempty"`
	PerGroup    int64  `json:"per_group,omitempty"`
	Paused      string `json:"paused,omitempty"`
	MaxWaiting  int64  `json:"max_waiting,omitempty"`
	WhenFull    string `json:"when_full,omitempty"` // with max_waiting
	HeadStartMS int64  `json:"head_start_ms,omitempty"`
}

// NewSettingsBody shows settings.
func NewSettingsBody(s *fsm.Settings) SettingsBody {
	body := SettingsBody{Groups: s.Groups.String(), PerGroup: s.PerGroup, Paused: s.Paused, MaxWaiting: s.MaxWaiting, HeadStartMS: s.HeadStartMS}
	switch {
	case s.DropOldest:
		body.WhenFull = DropOldest
	case s.MaxWaiting > 0:
		body.WhenFull = Refuse
	}
	return body
}

// NumberOf returns a number of permits as replies show it: null (nil) for a family, which has no
// permits in all.
func NumberOf(s *fsm.Settings, permits int64) *int64 {
	if s.Family {
		return nil
	}
	return &permits
}

// LimitOf returns the limit of a group as replies show it: null without one.
func LimitOf(limit int64) *int64 {
	if limit == fsm.NoLimit {
		return nil
	}
	return &limit
}

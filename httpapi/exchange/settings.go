package exchange

import (
	"strconv"
	"strings"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// GroupForm refuses a text that is not a valid name of a group.
const GroupForm = "The name of a group is up to 128 bytes of UTF-8 without control characters."

// GroupName checks the name of a group from a query or a body.
func GroupName(field, name string) (string, error) {
	if !fsm.ValidGroup(name) {
		return "", Invalid(field, GroupForm)
	}
	return name, nil
}

// GroupSegment reads the name of a group from a segment of a path. A segment can't be empty, so "-" means the empty
// group, and a group that begins with "-" has another "-" before it.
func GroupSegment(field, segment string) (string, error) {
	name, marked := strings.CutPrefix(segment, "-")
	if segment == "" || marked && name != "" && name[0] != '-' {
		return "", Invalid(field, `In a path the empty group is "-", and a group that begins with "-" has another "-" before it.`)
	}
	return GroupName(field, name)
}

// Values of the settings when_full and on_lost.
const (
	Refuse     = "refuse"
	DropOldest = "drop-oldest"
	Release    = "release"
	Quarantine = "quarantine"
)

// SettingsBody is the JSON of the optional settings of a semaphore. Settings without a value are left out.
type SettingsBody struct {
	Groups      string `json:"groups,omitempty"`
	PerGroup    int64  `json:"per_group,omitempty"`
	Paused      string `json:"paused,omitempty"`
	MaxWaiting  int64  `json:"max_waiting,omitempty"`
	WhenFull    string `json:"when_full,omitempty"` // only with max_waiting
	HeadStartMS int64  `json:"head_start_ms,omitempty"`
	WindowMS    int64  `json:"window_ms,omitempty"`
	CooldownMS  int64  `json:"cooldown_ms,omitempty"`
	OnLost      string `json:"on_lost,omitempty"` // "quarantine", or a duration
	MaxHoldMS   int64  `json:"max_hold_ms,omitempty"`
	Slots       bool   `json:"slots,omitempty"`
}

// NewSettingsBody shows settings.
func NewSettingsBody(s *fsm.Settings) SettingsBody {
	body := SettingsBody{Groups: s.Groups.String(), PerGroup: s.PerGroup, Paused: s.Paused, MaxWaiting: s.MaxWaiting, HeadStartMS: s.HeadStartMS,
		WindowMS: s.WindowMS, CooldownMS: s.CooldownMS, OnLost: onLost(s.OnLostMS), MaxHoldMS: s.MaxHoldMS, Slots: s.Slots}
	switch {
	case s.DropOldest:
		body.WhenFull = DropOldest
	case s.MaxWaiting > 0:
		body.WhenFull = Refuse
	}
	return body
}

// onLost returns the setting on_lost as text, or "" for the default.
func onLost(ms int64) string {
	switch ms {
	case 0:
		return ""
	case fsm.Quarantine:
		return Quarantine
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// Slots is a list of slots in a reply.
type Slots []fsm.SlotRun

// MarshalJSON writes each number of the runs.
func (s Slots) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for _, run := range s {
		for slot := run.From; slot < run.From+run.Count; slot++ {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = strconv.AppendUint(out, uint64(slot), 10)
		}
	}
	return append(out, ']'), nil
}

// NumberOf returns a number of permits for a reply: nil (null) for a semaphore without a total.
func NumberOf(s *fsm.Settings, permits int64) *int64 {
	if s.Family {
		return nil
	}
	return &permits
}

// LimitOf returns the limit of a group for a reply: nil (null) without a limit.
func LimitOf(limit int64) *int64 {
	if limit == fsm.NoLimit {
		return nil
	}
	return &limit
}

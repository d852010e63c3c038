package declare

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// noMax is the max of a semaphore that has no total number of permits, only a limit for each group.
const noMax = "none"

func (s *Semaphore) read(in map[string]any) (err error) {
	if in["max"] == noMax {
		s.Settings.Family = true
	} else if s.Permits, err = integer(in, "max", math.MinInt64, math.MaxInt64); err != nil {
		return err
	}
	if _, present := in["level"]; present {
		level, err := integer(in, "level", math.MinInt32, math.MaxInt32)
		if err != nil {
			return err
		}
		s.Level = int32(level)
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		read, known := settings[name]
		switch {
		case known:
			if err := read(&s.Settings, in, name); err != nil {
				return err
			}
		case name != "max" && name != "level":
			s.ignored = append(s.ignored, name)
		}
	}
	return nil
}

// settings reads each setting.
var settings = map[string]func(c *fsm.SettingsChange, in map[string]any, name string) error{
	"groups": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return choice(&c.Groups, in, name, map[string]fsm.Grouping{"none": fsm.NoGroups, "request": fsm.ByRequest, "owner": fsm.ByOwner})
	},
	"per_group": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return bound(&c.PerGroup, in, name, math.MaxInt64)
	},
	"paused": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		text, ok := in[name].(string)
		if c.Paused = (fsm.Change[string]{Given: true, Value: text}); !ok || !fsm.ValidReason(text) {
			return fmt.Errorf("%s is a text of up to 1,024 bytes without control characters", name)
		}
		return nil
	},
	"max_waiting": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return bound(&c.MaxWaiting, in, name, fsm.MaxWaitingLimit)
	},
	"when_full": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return choice(&c.DropOldest, in, name, map[string]bool{"refuse": false, "drop-oldest": true})
	},
	"head_start": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return span(&c.HeadStartMS, in, name, 0, fsm.MaxHeadStartMS)
	},
	"window": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return span(&c.WindowMS, in, name, fsm.MinWindowMS, fsm.MaxWindowMS)
	},
	"cooldown": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return span(&c.CooldownMS, in, name, 0, fsm.MaxCooldownMS)
	},
	"on_lost": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		switch in[name] {
		case "release", "", int64(0):
			c.OnLostMS = fsm.Change[int64]{Given: true}
		case "quarantine":
			c.OnLostMS = fsm.Change[int64]{Given: true, Value: fsm.Quarantine}
		default:
			if err := span(&c.OnLostMS, in, name, 1, fsm.MaxCooldownMS); err != nil {
				return fmt.Errorf("%w, or release or quarantine", err)
			}
		}
		return nil
	},
	"max_hold": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		return span(&c.MaxHoldMS, in, name, fsm.MinHoldMS, fsm.MaxTTLMS)
	},
	"slots": func(c *fsm.SettingsChange, in map[string]any, name string) error {
		on, ok := in[name].(bool)
		if c.Slots = (fsm.Change[bool]{Given: true, Value: on}); !ok {
			return fmt.Errorf("%s is true or false", name)
		}
		return nil
	},
}

// span reads a duration between lowest and highest. 0, "" and "0s" clear the setting, even if they are below lowest.
func span(to *fsm.Change[int64], in map[string]any, name string, lowest, highest int64) error {
	if in[name] == int64(0) || in[name] == "" {
		*to = fsm.Change[int64]{Given: true}
		return nil
	}
	text, ok := in[name].(string)
	read, err := time.ParseDuration(text)
	ms := read.Milliseconds()
	if *to = (fsm.Change[int64]{Given: true, Value: ms}); !ok || err != nil || read < 0 || ms > highest || ms < lowest && read != 0 {
		return fmt.Errorf(`%s is a duration like "15m", from %v to %v`, name, time.Duration(lowest)*time.Millisecond, time.Duration(highest)*time.Millisecond)
	}
	return nil
}

// choice reads a text that is a key of values. "" clears the setting.
func choice[T any](to *fsm.Change[T], in map[string]any, name string, values map[string]T) error {
	text, _ := in[name].(string)
	value, known := values[text]
	if !known && in[name] != "" {
		return fmt.Errorf("%s is %s", name, strings.Join(slices.Sorted(maps.Keys(values)), " or "))
	}
	*to = fsm.Change[T]{Given: true, Value: value}
	return nil
}

// bound reads a number from 0 to highest. 0 means no bound.
func bound(to *fsm.Change[int64], in map[string]any, name string, highest int64) error {
	n, err := integer(in, name, 0, highest)
	*to = fsm.Change[int64]{Given: true, Value: n}
	return err
}

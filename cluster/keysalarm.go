package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// keysLookEvery is how often the alarm looks.
	keysLookEvery = time.Second
	// keysAlarmEvery is how often it may say the same.
	keysAlarmEvery = 10 * time.Minute
	// keysAlarmPercent is how full the table is then.
	keysAlarmPercent = 80
)

// keysAlarm writes a line to the log of the node that leads when the table of
// idempotency keys is nearly full: beyond it, requests with new keys are refused.
// All functions are called from one goroutine.
type keysAlarm struct {
	log   hclog.Logger
	leads func() bool
	keys  func() fsm.KeysView

	saidAt time.Time // zero: never
}

// run looks until ctx ends.
func (a *keysAlarm) run(ctx context.Context) {
	for pause(ctx, keysLookEvery) == nil {
		a.look(time.Now())
	}
}

func (a *keysAlarm) look(now time.Time) {
	if !a.leads() || !a.saidAt.IsZero() && now.Sub(a.saidAt) < keysAlarmEvery {
		return
	}
	k := a.keys()
	full := func(has, most int64) bool { return float64(has)*100 >= float64(most)*keysAlarmPercent }
	if full(k.Keys, k.MostKeys) || full(k.Bytes, k.MostBytes) || full(k.Marks, k.MostMarks) {
		a.saidAt = now
		a.log.Warn("the table of idempotency keys is nearly full: requests with new keys are refused once it is",
			"keys", k.Keys, "most_keys", k.MostKeys, "bytes", k.Bytes, "most_bytes", k.MostBytes, "marks", k.Marks, "most_marks", k.MostMarks)
	}
}

func (l *life) alarmOfKeys(leads func() bool) *keysAlarm {
	return &keysAlarm{log: l.node.log, leads: leads, keys: l.keysNow}
}

func (l *life) keysNow() (now fsm.KeysView) {
	l.node.View(func(m *fsm.Machine) { now = m.Keys() })
	return now
}

func (l *life) emitKeys(emit func(float64, ...string)) {
	k := l.keysNow()
	emit(float64(k.Keys), "keys")
	emit(float64(k.Bytes), "bytes")
	emit(float64(k.Marks), "marks")
}

func (l *life) emitKeyLimits(emit func(float64, ...string)) {
	k := l.keysNow()
	emit(float64(k.MostKeys), "keys")
	emit(float64(k.MostBytes), "bytes")
	emit(float64(k.MostMarks), "marks")
}

package main

import (
	"reflect"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// TestFlagsKeepEntriesShort: if a limit of the state machine has a highest value, its flag refuses a higher value. Other
// limits have no highest value.
func TestFlagsKeepEntriesShort(t *testing.T) {
	highestLimits := reflect.ValueOf(fsm.MaxLimits())
	for i := range highestLimits.NumField() {
		limits := fsm.DefaultLimits()
		highest, field := highestLimits.Field(i).Int(), reflect.ValueOf(&limits).Elem().Field(i)
		field.SetInt(highest)
		within := boundLimits(&limits)
		field.SetInt(highest + 1<<40)
		beyond := boundLimits(&limits)
		if within != nil || (beyond != nil) != (highest > 0) {
			t.Errorf("%s: %v, %v", highestLimits.Type().Field(i).Name, within, beyond)
		}
	}
}

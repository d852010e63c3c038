package main

import (
	"reflect"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// TestFlagsKeepEntriesShort: each limit of the state machine that has a highest value is
// refused beyond it, and only these are.
func TestFlagsKeepEntriesShort(t *testing.T) {
	most := reflect.ValueOf(fsm.MaxLimits())
	for i := range most.NumField() {
		limits := fsm.DefaultLimits()
		highest, field := most.Field(i).Int(), reflect.ValueOf(&limits).Elem().Field(i)
		field.SetInt(highest)
		within := boundLimits(&limits)
		field.SetInt(highest + 1<<40)
		beyond := boundLimits(&limits)
		if within != nil || (beyond != nil) != (highest > 0) {
			t.Errorf("%s: %v, %v", most.Type().Field(i).Name, within, beyond)
		}
	}
}

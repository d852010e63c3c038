package v1_test

import (
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// TestScripts are tables of the contract.
func TestScripts(t *testing.T) { apitest.RunScripts(t, "testdata") }

package v1_test

import (
	"testing"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestPatchBelowItsLevel(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":5}`)
	a.Node.Fail = outcome.ErrBelowLevel
	a.Do("PATCH /v1/semaphores/db", `{"permits":4}`).RefusedWith(409, "level-too-low")
}

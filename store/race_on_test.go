//go:build race

package store

// The race detector slows these tests, which read and write a lot of memory in
// one goroutine, thirteenfold, and finds nothing in them: some are enough there.
const damageCases = 60

// crashes is 0: TestPowerLoss would not run under the race detector either.
const crashes = 0

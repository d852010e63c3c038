//go:build race

package boltcheck

// The race detector slows these tests, which read and write a lot of memory in
// one goroutine, thirteenfold, and finds nothing in them: some are enough there.
const damageCases = 120

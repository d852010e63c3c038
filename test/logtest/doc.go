// Package logtest records a log, for tests that look for lines in it. Only tests import it,
// from any package; it imports no package of Signalbox.
//
//   - log.go: Log, a logger that keeps what is logged.
package logtest

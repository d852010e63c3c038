package httpapi

import "testing"

// The count is looked at before the peer, unless the peer is to be renewed first.
func TestThrottleCountBeforePeer(t *testing.T) {
	inEachPlace(t, func(s *throttleSite) {
		s.semaphore("A", "1", "0")
		s.is(s.ask("PUT /peers/4711/A", "0"), "400 bare Lock count must be a positive number. Found: 0.")
		s.is(s.ask("PUT /peers/4711/A", "-3"), "400 bare Lock count must be a positive number. Found: -3.")
		s.is(s.ask("PUT /peers/4711/A?expires_in=1m", "0"), "400 bare Unknown peer")
		s.is(s.ask("PUT /peers/4711/A", "1"), "400 bare Unknown peer")
		s.is(s.ask("PUT /peers/4711/none", "0"), "400 bare Unknown semaphore")
	})
}

package throttle

import (
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// The count is checked before the peer, unless the request also renews the peer.
func TestThrottleCountBeforePeer(t *testing.T) {
	inEachThrottle(t, func(s *apitest.Site) {
		s.Semaphore("A", "1", "0")
		s.Is(s.Ask("PUT /peers/4711/A", "0"), "400 bare Lock count must be a positive number. Found: 0.")
		s.Is(s.Ask("PUT /peers/4711/A", "-3"), "400 bare Lock count must be a positive number. Found: -3.")
		s.Is(s.Ask("PUT /peers/4711/A?expires_in=1m", "0"), "400 bare Unknown peer")
		s.Is(s.Ask("PUT /peers/4711/A", "1"), "400 bare Unknown peer")
		s.Is(s.Ask("PUT /peers/4711/none", "0"), "400 bare Unknown semaphore")
	})
}

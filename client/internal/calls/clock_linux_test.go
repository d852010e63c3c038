package calls

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestSuspensionOfThisMachine: the clock that goes on is the kernel's time since the boot, and this machine was awake.
func TestSuspensionOfThisMachine(t *testing.T) {
	text, err := os.ReadFile("/proc/uptime")
	var seconds float64
	if _, scanned := fmt.Sscan(string(text), &seconds); err != nil || scanned != nil {
		t.Skip(err, scanned)
	}
	up := time.Duration(seconds * float64(time.Second))
	if now := read(boottime); now < up || now > up+5*time.Second {
		t.Errorf("%v since the boot, not %v", now, up)
	}
	if slept := suspended(); slept != 0 || suspendedBefore < 0 || suspendedBefore > up {
		t.Errorf("suspended for %v, and before for %v", slept, suspendedBefore)
	}
}

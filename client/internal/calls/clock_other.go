//go:build !linux

package calls

import "time"

// suspended returns 0, because the suspension of this system is not measured.
func suspended() time.Duration { return 0 }

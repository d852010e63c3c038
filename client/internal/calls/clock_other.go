//go:build !linux

package calls

import "time"

// suspended returns 0: this system's suspension is not measured.
func suspended() time.Duration { return 0 }

package fsm

import (
	"fmt"
	"strings"
	"testing"
)

// TestConstantsBelongToTheLevel pins the constants that are behaviour: with another
// value a machine would apply the same entries otherwise than one of another program.
// A line may be added, for a rule of a new level, never changed.
func TestConstantsBelongToTheLevel(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name  string
		value int64
	}{
		{"remembered ended sessions", maxEnded}, {"ms that they are kept", endedKeptMS}, {"remembered revoked leases", maxRevoked},
		{"ms that keys and marks are kept", keysKeptMS}, {"marks for each key allowed", marksPerKey}, {"bytes that a key counts beside its texts", keyOverhead},
		{"bytes for a member of an outcome", memberBytes}, {"bytes for the outcome of a wait", waitBytes}, {"bytes for any outcome", answerBytes},
		{"bytes for each renewal's outcome", maxEachBytes}, {"keys of one request", maxRequestKeys}, {"waiting keys of one session", maxSessionKeys},
		{"sessions that expire in an entry", expireSessions}, {"records that expire in an entry", expireRecords}, {"memories of each kind forgotten in an entry", forgetKeys},
		{"largest token", maxToken}, {"jump after a recovery", reignJump}, {"notices", maxNotices}, {"notices of a semaphore", maxNoticesHere},
		{"bytes of a notice's address", maxNoticeBytes}, {"ms that a notice is kept", noticesKeptMS}, {"notices done at once", maxNoticesDone},
		{"bytes of a name", maxNameBytes}, {"bytes of a reason", maxReasonBytes}, {"bytes of a key", maxKeyBytes}, {"bytes of an owner", MaxOwnerBytes},
		{"bytes of a trace", MaxTraceBytes}, {"pairs of metadata", maxMetadataPairs}, {"bytes of metadata", maxMetadataBytes}, {"members of a list", MaxMembers},
		{"longest ttl in ms", MaxTTLMS}, {"keys of one owner where 3 are allowed", half(3)},
	} {
		fmt.Fprintf(&b, "%s %d\n", c.name, c.value)
	}
	fmt.Fprintf(&b, "what one entry does because of the state %+v\n", defaultBudget())
	fmt.Fprintf(&b, "limits before the first reign %+v\n", DefaultLimits())
	golden(t, "testdata/constants.golden", b.String())
}

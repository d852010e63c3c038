package fsm

// EntryWeight and EntryBytes bound the commands of one entry, so that an entry
// applies within 50 ms. They bind the leader that fills an entry, not the
// machine that applies it: other bounds may come with another version.
const (
	EntryWeight = 1024
	EntryBytes  = 256 << 10 // of encoded commands
)

// Weight returns how much work a command asks the machine for, in units of one
// acquire of one semaphore: at least 1. It counts what the command itself lists,
// four renewals of one command as one. Work that the state decides (the waiters
// that an up serves, the leases of a session that ends) is bounded by the machine.
func Weight(c Command) int {
	weight := 1
	switch c := c.(type) {
	case AcquireMany:
		weight = len(c.Wants)
	case RestoreSession:
		weight = len(c.Leases)
	case Renew:
		weight = (len(c.Renewals) + 3) / 4
	case NoticeDone:
		weight = len(c.IDs)
	}
	return max(weight, 1)
}

package fsm

import "encoding/binary"

// OpOf returns the operation of a command that [Envelope.Encode] made, and 0 for bytes
// that name none. It reads the head alone: O(1).
func OpOf(command []byte) Op {
	var head [4]uint64 // level, origin, sequence, operation
	for i := range head {
		v, n := binary.Uvarint(command)
		if n <= 0 {
			return 0
		}
		head[i], command = v, command[n:]
	}
	return Op(head[3])
}

// MayGrow reports whether an operation may leave more records behind than it
// found. A leader whose disk is nearly full takes only the others: they keep or
// end what clients have. A new operation counts as growing until it is listed.
//
// What is granted because of a release was a waiting request before, and weighs
// no more as a lease. An idempotency key and the mark of an ended session do not
// count: both are bounded, and go after their time. Up is growing though its
// record stays as large: it makes permits, of which any number may follow.
func (op Op) MayGrow() bool {
	switch op {
	case OpReign, OpDeleteSemaphore, OpRenew, OpEndSession, OpRelease, OpResizeLease, OpRevokeLease,
		OpListRemove, OpListDeliver, OpNoticeDone:
		return false
	}
	return true
}

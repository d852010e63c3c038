package fsm

import "fmt"

// Op is the number of an operation, as the log has it. A number is never used
// again for anything else; testdata/numbers.golden pins them.
type Op uint64

// The operations.
const (
	OpReign           Op = 1
	OpPutSemaphore    Op = 2
	OpCreateSemaphore Op = 3
	OpDeleteSemaphore Op = 4
	OpUp              Op = 5
	OpDown            Op = 6
	OpSetValue        Op = 7
	OpOpenSession     Op = 8
	OpRenew           Op = 9
	OpEndSession      Op = 10
	OpAcquire         Op = 11
	OpAcquireOnce     Op = 12
	OpAcquireMany     Op = 13
	OpRelease         Op = 14
	OpResizeLease     Op = 15
	OpRevokeLease     Op = 16
	OpRestoreSession  Op = 17
	OpListAdd         Op = 18
	OpListRemove      Op = 19
	OpListDeliver     Op = 20
	OpNoticeDone      Op = 21
	OpRaiseLevel      Op = 22 // since level 1
	opCount           Op = 23
)

// operation is one row of the table of operations.
type operation struct {
	name   string
	decode func(*decoder) Command
	since  uint32 // the feature level from which on it may be proposed
}

// operations has one row, one file and one script for each operation.
var operations = [opCount]operation{
	OpReign:           {"reign", decodeReign, 0},
	OpPutSemaphore:    {"put", decodePutSemaphore, 0},
	OpCreateSemaphore: {"create", decodeCreateSemaphore, 0},
	OpDeleteSemaphore: {"delete", decodeDeleteSemaphore, 0},
	OpUp:              {"up", decodeUp, 0},
	OpDown:            {"down", decodeDown, 0},
	OpSetValue:        {"set", decodeSetValue, 0},
	OpOpenSession:     {"open", decodeOpenSession, 0},
	OpRenew:           {"renew", decodeRenew, 0},
	OpEndSession:      {"end", decodeEndSession, 0},
	OpAcquire:         {"acquire", decodeAcquire, 0},
	OpAcquireOnce:     {"acquire-once", decodeAcquireOnce, 0},
	OpAcquireMany:     {"acquire-many", decodeAcquireMany, 0},
	OpRelease:         {"release", decodeRelease, 0},
	OpResizeLease:     {"resize", decodeResizeLease, 0},
	OpRevokeLease:     {"revoke", decodeRevokeLease, 0},
	OpRestoreSession:  {"restore", decodeRestoreSession, 0},
	OpListAdd:         {"list-add", decodeListAdd, 0},
	OpListRemove:      {"list-remove", decodeListRemove, 0},
	OpListDeliver:     {"list-deliver", decodeListDeliver, 0},
	OpNoticeDone:      {"notice-done", decodeNoticeDone, 0},
	OpRaiseLevel:      {"raise-level", decodeRaiseLevel, 1},
}

// String is the operation's stable name, as logs and metrics show it.
func (op Op) String() string {
	if op > 0 && op < opCount {
		return operations[op].name
	}
	return fmt.Sprintf("operation %d", uint64(op))
}

// Command is one operation with its parameters. Its types are this package's
// own, one for each operation; they are values and safe to share.
type Command interface {
	// Op is the operation's number.
	Op() Op
	encode(*encoder)
	apply(*Machine) Result
}

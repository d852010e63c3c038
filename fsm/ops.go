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
	opCount           Op = 22
)

// operation is one row of the table of operations.
type operation struct {
	name   string
	decode func(*decoder) Command
}

// operations has one row, one file and one script for each operation.
var operations = [opCount]operation{
	OpReign:           {"reign", decodeReign},
	OpPutSemaphore:    {"put", decodePutSemaphore},
	OpCreateSemaphore: {"create", decodeCreateSemaphore},
	OpDeleteSemaphore: {"delete", decodeDeleteSemaphore},
	OpUp:              {"up", decodeUp},
	OpDown:            {"down", decodeDown},
	OpSetValue:        {"set", decodeSetValue},
	OpOpenSession:     {"open", decodeOpenSession},
	OpRenew:           {"renew", decodeRenew},
	OpEndSession:      {"end", decodeEndSession},
	OpAcquire:         {"acquire", decodeAcquire},
	OpAcquireOnce:     {"acquire-once", decodeAcquireOnce},
	OpAcquireMany:     {"acquire-many", decodeAcquireMany},
	OpRelease:         {"release", decodeRelease},
	OpResizeLease:     {"resize", decodeResizeLease},
	OpRevokeLease:     {"revoke", decodeRevokeLease},
	OpRestoreSession:  {"restore", decodeRestoreSession},
	OpListAdd:         {"list-add", decodeListAdd},
	OpListRemove:      {"list-remove", decodeListRemove},
	OpListDeliver:     {"list-deliver", decodeListDeliver},
	OpNoticeDone:      {"notice-done", decodeNoticeDone},
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

package httpapi

import (
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

var opOpen = operation{
	name:   "open",
	body:   fieldTTL | fieldMetadata | fieldOnEnd,
	needed: fieldTTL,
	lives:  true,
	command: func(p *params, node Commands) fsm.Command {
		return fsm.OpenSession{Session: node.DrawSession(), TTLMS: p.ttlMS, Metadata: p.metadata, Keep: p.keep}
	},
	answer: func(p *params, r *cluster.Reply) answer {
		return created(newOpenedBody(p, r), sessionPath(r.Session))
	},
}

var opRenew = operation{
	name:     "renew",
	names:    fieldSession,
	body:     fieldTTL,
	query:    fieldShowLeases,
	defaults: keepTTL,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.Renew{Renewals: []fsm.Renewal{{Session: p.session, TTLMS: p.ttlMS}}}
	},
	answer: func(_ *params, r *cluster.Reply) answer { return ok(newLifeBody(r)) },
}

var opEnd = operation{
	name:  "end",
	names: fieldSession,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.EndSession{Session: p.session}
	},
	answer: noContent,
}

// opRevokeSession is an operator's end of a session.
var opRevokeSession = operation{
	name:  "revoke-session",
	names: fieldSession,
	body:  fieldReason,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.EndSession{Session: p.session, Operator: true, Reason: p.reason}
	},
	answer: noContent,
}

var opRestore = operation{
	name:   "restore",
	names:  fieldSession,
	body:   fieldTTL | fieldLeases | fieldMetadata,
	needed: fieldTTL | fieldLeases,
	lives:  true,
	command: func(p *params, _ Commands) fsm.Command {
		return fsm.RestoreSession{Session: p.session, TTLMS: p.ttlMS, Leases: p.wants, Metadata: p.metadata}
	},
	answer: func(_ *params, r *cluster.Reply) answer { return ok(newRestoredBody(r)) },
}

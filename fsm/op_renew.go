package fsm

// maxRenewals bounds the sessions that one command may renew.
const maxRenewals = 4096

// Renew moves the deadlines of sessions to ttl from now. Many renewals share one command; each has an independent
// result in Result.Each.
//
// Codes of each: OK, UnknownSession (ExpiredSession, Revoked).
type Renew struct {
	Renewals []Renewal // 1 … 4,096
}

// Renewal is one session of a Renew.
type Renewal struct {
	Session uint64
	TTLMS   int64 // ttl of the session from now on, possibly shorter; or KeepTTL
}

// Op is OpRenew.
func (Renew) Op() Op                       { return OpRenew }
func (Renew) names() []string              { return nil }
func (c Renew) weight() int                { return (len(c.Renewals) + 3) / 4 } // four renewals cost as much as one command
func (c Renew) outcomeBytes(*Limits) int64 { return int64(len(c.Renewals)) * maxEachBytes }

func (c Renew) session() uint64 {
	if len(c.Renewals) != 1 {
		return 0
	}
	return c.Renewals[0].Session
}

func (c Renew) encode(e *encoder) {
	e.uint(uint64(len(c.Renewals)))
	for _, r := range c.Renewals {
		e.uint(r.Session)
		e.int(r.TTLMS)
	}
}

func decodeRenew(d *decoder) Command {
	c := Renew{Renewals: make([]Renewal, d.Count(2))}
	for i := range c.Renewals {
		c.Renewals[i] = Renewal{Session: d.Uint(), TTLMS: d.Int()}
	}
	return c
}

func (c Renew) apply(m *Machine) Result {
	if len(c.Renewals) == 0 || len(c.Renewals) > maxRenewals {
		return Result{Code: Malformed}
	}
	result := Result{Each: make([]Result, len(c.Renewals))}
	for i, r := range c.Renewals {
		result.Each[i] = r.apply(m)
	}
	m.finishCommand()
	return result
}

func (c Renewal) apply(m *Machine) (result Result) {
	if c.TTLMS < KeepTTL || c.TTLMS > MaxTTLMS {
		return Result{Code: Malformed}
	}
	r, ok := m.findSession(c.Session, &result)
	if !ok {
		return result
	}
	ttl := m.sessions.at(r).ttlMS
	if c.TTLMS != KeepTTL {
		ttl = c.TTLMS
	}
	m.giveTTL(r, ttl)
	m.describeSession(&result, r)
	m.takeOver(r, &result)
	return result
}

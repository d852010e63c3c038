package fsm

// MaxRaise bounds RaiseTokens.Above. The tokens above it last for 142 years at a million grants a second.
const MaxRaise = (maxToken + 1) / 2

// RaiseTokens makes each later token higher than Above. For example, when semaphores move here from another cluster,
// Above is that cluster's highest token, so that their tokens keep rising. With Above 0 it only returns the highest
// token.
//
// Codes: OK (Value: the highest token so far), Malformed.
type RaiseTokens struct {
	Above uint64 // up to MaxRaise
}

// Op is OpRaiseTokens.
func (RaiseTokens) Op() Op          { return OpRaiseTokens }
func (RaiseTokens) names() []string { return nil }
func (RaiseTokens) session() uint64 { return 0 }

func (c RaiseTokens) encode(e *encoder) { e.uint(c.Above) }

func decodeRaiseTokens(d *decoder) Command { return RaiseTokens{Above: d.Uint()} }

func (c RaiseTokens) apply(m *Machine) Result {
	if c.Above > MaxRaise {
		return Result{Code: Malformed}
	}
	m.tokens = max(m.tokens, c.Above)
	return Result{Code: OK, Value: int64(m.tokens)}
}

package httpapi

import "github.com/signalbox/signalbox/fsm"

// serdeField is one member that a body must have.
type serdeField struct {
	name string
	read func() *serdeFault
}

// object reads an object that needs all of the fields; what else it has is
// ignored. An object given as an array of its values is refused, unlike there:
// no client sends one.
func (r *serdeReader) object(expected string, fields []serdeField) *serdeFault {
	seen := make([]bool, len(fields))
	f := r.members(expected, func(name string) *serdeFault {
		for i := range fields {
			if fields[i].name != name {
				continue
			}
			if seen[i] {
				return r.afterMembers("duplicate field `" + name + "`")
			}
			seen[i] = true
			return r.member(name, fields[i].read)
		}
		return r.member(name, r.skip)
	})
	if f != nil {
		return f
	}
	for i := range fields {
		if !seen[i] {
			return r.afterMembers("missing field `" + fields[i].name + "`")
		}
	}
	r.at++ // }
	return nil
}

// members goes through an object up to its last brace, which is left. each
// reads on behind a member's name.
func (r *serdeReader) members(expected string, each func(name string) *serdeFault) *serdeFault {
	b, ok := r.token()
	if !ok {
		return r.unexpected(eofValue)
	}
	if b != '{' {
		return r.otherType(expected)
	}
	r.at++
	for first := true; ; first = false {
		var name string
		var done bool
		f := r.inKey(func() (f *serdeFault) {
			name, done, f = r.name(first)
			return f
		})
		if f != nil || done {
			return f
		}
		if f := each(name); f != nil {
			return f
		}
	}
}

// name reads the next member's name; done is true at the last brace.
func (r *serdeReader) name(first bool) (name string, done bool, f *serdeFault) {
	b, ok := r.token()
	switch {
	case !ok:
		return "", false, r.unexpected(eofObject)
	case b == '}':
		return "", true, nil
	case first:
	case b != ',':
		return "", false, r.unexpected("expected `,` or `}`")
	default:
		r.at++
		b, ok = r.token()
	}
	switch {
	case !ok:
		return "", false, r.unexpected(eofValue)
	case b == '}':
		return "", false, r.unexpected("trailing comma")
	case b != '"':
		return "", false, r.unexpected("key must be a string")
	}
	r.at++
	name, f = r.text()
	return name, false, f
}

// member reads the colon and a value of that name.
func (r *serdeReader) member(name string, read func() *serdeFault) *serdeFault {
	if f := r.colon(); f != nil {
		return f
	}
	r.path = append(r.path, name)
	defer r.leave()
	return read()
}

func (r *serdeReader) colon() *serdeFault {
	b, ok := r.token()
	switch {
	case !ok:
		return r.unexpected(eofObject)
	case b != ':':
		return r.unexpected("expected `:`")
	}
	r.at++
	return nil
}

// afterMembers reports what is wrong with an object as a whole. Its end, if it
// comes next, counts as read.
func (r *serdeReader) afterMembers(what string) *serdeFault {
	if b, _ := r.token(); b == '}' {
		r.at++
	}
	return r.misfit(what)
}

// counts reads an object of integers, in the order of their first mention. Of a
// name given twice the last value counts.
func (r *serdeReader) counts() ([]fsm.Want, *serdeFault) {
	var wants []fsm.Want
	at := map[string]int{}
	f := r.members("a map", func(name string) *serdeFault {
		return r.member(name, func() *serdeFault {
			count, f := r.signed()
			if i, again := at[name]; again {
				wants[i].Count = count
			} else {
				at[name] = len(wants)
				wants = append(wants, fsm.Want{Semaphore: name, Count: count})
			}
			return f
		})
	})
	if f == nil {
		r.at++ // }
	}
	return wants, f
}

// skip passes over a value of any kind, however deep, without recursion.
func (r *serdeReader) skip() *serdeFault {
	var open []byte // the brackets around
	for {
		closed, f := r.skipOne(&open)
		if f != nil {
			return f
		}
		for closed { // a value is complete
			if len(open) == 0 {
				return nil
			}
			if closed, f = r.skipNext(&open); f != nil {
				return f
			}
		}
	}
}

// skipOne passes over a simple value, or opens a list or an object; closed tells
// whether a value is complete.
func (r *serdeReader) skipOne(open *[]byte) (closed bool, f *serdeFault) {
	b, ok := r.token()
	if !ok {
		return false, r.unexpected(eofValue)
	}
	switch {
	case b == '[' || b == '{':
		r.at++
		return r.skipInto(open, b)
	case b == '"':
		r.at++
		return true, r.skipText()
	case b == '-' || b >= '0' && b <= '9':
		return true, r.skipNumber()
	}
	for _, word := range []string{"null", "true", "false"} {
		if b == word[0] {
			r.at++
			return true, r.word(word[1:])
		}
	}
	return false, r.unexpected(expectedValue)
}

// skipNumber passes over a number of any size. Where it is cut off, that library
// has another word for it than in a number that it wants.
func (r *serdeReader) skipNumber() *serdeFault {
	if r.data[r.at] == '-' {
		r.at++
	}
	f := r.integerPart()
	if f == nil {
		f = r.fractionPart()
	}
	if f != nil && r.at == len(r.data) {
		return r.broken(invalidNumber)
	}
	return f
}

// skipInto opens a list or an object, which may be empty.
func (r *serdeReader) skipInto(open *[]byte, bracket byte) (closed bool, f *serdeFault) {
	b, ok := r.token()
	switch {
	case !ok && bracket == '[':
		return false, r.unexpected(eofList)
	case !ok:
		return false, r.unexpected(eofObject)
	case b == bracket+2: // the ASCII distance of both kinds
		r.at++
		return true, nil
	}
	*open = append(*open, bracket)
	if bracket == '{' {
		f = r.skipName()
	}
	return false, f
}

// skipNext goes on behind a complete value inside a list or an object; closed
// tells whether that is complete with it.
func (r *serdeReader) skipNext(open *[]byte) (closed bool, f *serdeFault) {
	bracket := (*open)[len(*open)-1]
	b, ok := r.token()
	switch {
	case !ok && bracket == '[':
		return false, r.unexpected(eofList)
	case !ok:
		return false, r.unexpected(eofObject)
	case b == bracket+2:
		r.at++
		*open = (*open)[:len(*open)-1]
		return true, nil
	case b != ',' && bracket == '[':
		return false, r.unexpected("expected `,` or `]`")
	case b != ',':
		return false, r.unexpected("expected `,` or `}`")
	}
	r.at++
	if bracket == '{' {
		f = r.skipName()
	}
	return false, f
}

func (r *serdeReader) skipName() *serdeFault {
	b, ok := r.token()
	switch {
	case !ok:
		return r.unexpected(eofObject)
	case b != '"':
		return r.unexpected("key must be a string")
	}
	r.at++
	if f := r.skipText(); f != nil {
		return f
	}
	return r.colon()
}

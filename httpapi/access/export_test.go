package access

import "crypto/sha256"

// ParseText parses the text of a file and returns its identities.
func ParseText(text string) (found []*Identity, err error) {
	grants, err := parse(text)
	for _, g := range grants {
		found = append(found, g.identity)
	}
	return found, err
}

// WatchEvery is how often a file is looked at.
const WatchEvery = watchEvery

// OfTokens returns the tokens of a table with one credential, whatever its hash is.
func OfTokens(text string) *Tokens {
	t := newTokens("")
	t.current.Store(&table{tokens: []*Credential{newCredential(&Identity{Name: text}, sha256.Sum256([]byte(text)))}})
	return t
}

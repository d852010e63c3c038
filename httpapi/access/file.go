package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/signalbox/signalbox/fsm"
)

// maxTokens bounds a file: each request is compared with every token.
const maxTokens = 4096

// Block is one [[token]] of a file. A member that is nil is not given.
type Block struct {
	Name              string    `toml:"name"`
	Hash              *string   `toml:"hash"` // sha256:HEX; nil: the name is a certificate's alone
	Scopes            []string  `toml:"scopes"`
	Prefixes          *[]string `toml:"prefixes"` // nil: every name
	Sessions          *int64    `toml:"sessions"`
	Leases            *int64    `toml:"leases"`
	Waiting           *int64    `toml:"waiting"`
	RequestsPerSecond *int64    `toml:"requests_per_second"`
	Watchers          *int64    `toml:"watchers"`
}

// hash is the SHA-256 of a token's text.
type hash [sha256.Size]byte

// grant is one block of a file, checked.
type grant struct {
	identity *Identity
	hash     hash
	hashed   bool
}

// contentOf returns the content of a file. If it can't be read, the text of the error stands for it.
func contentOf(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error(), err // names the file
	}
	return string(content), nil
}

// Check returns the error with which a node refuses a file of this text.
func Check(text string) error {
	_, err := parse(text)
	return err
}

// parse reads the text of a file strictly: an unknown key is an error, because its limit would be lost.
func parse(text string) ([]grant, error) {
	var document struct {
		Token []Block `toml:"token"`
	}
	known, err := toml.Decode(text, &document)
	if err != nil {
		return nil, oneLine(err)
	}
	if unknown := known.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%s is not a key of this file", unknown[0])
	}
	if n := len(document.Token); n == 0 || n > maxTokens {
		return nil, fmt.Errorf("%d [[token]]: 1 to %d are needed", n, maxTokens)
	}
	var grants []grant
	for i := range document.Token {
		g, err := document.Token[i].check()
		if err == nil {
			err = g.fits(grants)
		}
		if err != nil {
			return nil, fmt.Errorf("[[token]] %d (%q): %w", i+1, document.Token[i].Name, err)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

func oneLine(err error) error {
	var at toml.ParseError
	if errors.As(err, &at) && at.Message != "" {
		return fmt.Errorf("line %d: %s", at.Position.Line, at.Message)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(strings.TrimPrefix(line, "toml: "))
}

// fits compares a grant with the grants before it. Equal names are one identity, so that a token can be
// replaced while both work.
func (g *grant) fits(before []grant) error {
	for _, other := range before {
		switch {
		case other.hashed && g.hashed && other.hash == g.hash:
			return fmt.Errorf("%q has the same hash", other.identity.Name)
		case other.identity.Name == g.identity.Name && !other.identity.equal(g.identity):
			return errors.New("another token of this name has other rights or limits: both are one identity, so give both the same")
		}
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9._@:/+-]{1,64}$`).MatchString

func (b *Block) check() (g grant, err error) {
	if !validName(b.Name) {
		return g, errors.New("name: it is 1 to 64 letters, digits or any of . _ @ : / + -")
	}
	g.identity = &Identity{Name: b.Name}
	if g.identity.Scope, err = highest(b.Scopes); err != nil {
		return g, err
	}
	if b.Prefixes != nil && slices.Contains(b.Scopes, Metrics.String()) {
		return g, errors.New("prefixes: the metrics have the names of all; give the scope metrics to a token without prefixes")
	}
	if err := g.takePrefixes(b.Prefixes); err != nil {
		return g, err
	}
	if b.Hash != nil {
		if g.hash, err = parseHash(*b.Hash); err != nil {
			return g, err
		}
		g.hashed = true
	}
	for _, limit := range b.limits(g.identity) {
		if limit.value == nil {
			continue
		}
		if *limit.target = *limit.value; *limit.target < 1 || *limit.target > 1<<31 {
			return g, fmt.Errorf("%s: it is 1 to %d; leave it out for no limit", limit.key, int64(1<<31))
		}
	}
	return g, nil
}

// limit is a limit of a block, and where an identity has it.
type limit struct {
	key           string
	value, target *int64
}

func (b *Block) limits(id *Identity) []limit {
	return []limit{
		{"sessions", b.Sessions, &id.Limits.Sessions},
		{"leases", b.Leases, &id.Limits.Leases},
		{"waiting", b.Waiting, &id.Limits.Waiting},
		{"requests_per_second", b.RequestsPerSecond, &id.PerSecond},
		{"watchers", b.Watchers, &id.Watchers},
	}
}

// highest returns the listed scope that includes the others.
func highest(listed []string) (scope Scope, err error) {
	for _, name := range listed {
		parsed, err := parseScope(name)
		if err != nil {
			return 0, err
		}
		scope = max(scope, parsed)
	}
	if scope == 0 {
		return 0, errors.New(`scopes: list "metrics", "read", "use" or "admin"`)
	}
	return scope, nil
}

func parseScope(name string) (Scope, error) {
	for scope, known := range scopeNames {
		if name == known {
			return scope, nil
		}
	}
	return 0, fmt.Errorf("scopes: %q is not metrics, read, use or admin", name)
}

func (g *grant) takePrefixes(prefixes *[]string) error {
	if prefixes == nil {
		return nil
	}
	if g.identity.Scope == Admin {
		return errors.New("prefixes: an admin may use every name; leave them out")
	}
	for _, prefix := range *prefixes {
		if !fsm.ValidName(prefix) {
			return fmt.Errorf("prefixes: %q is not the beginning of a name; leave it out for every name", prefix)
		}
	}
	if len(*prefixes) == 0 {
		return errors.New("prefixes: the list is empty, so no name could be used; leave it out for every name")
	}
	for _, prefix := range slices.Sorted(slices.Values(*prefixes)) {
		if kept := g.identity.Prefixes; len(kept) == 0 || !strings.HasPrefix(prefix, kept[len(kept)-1]) {
			g.identity.Prefixes = append(kept, prefix)
		}
	}
	return nil
}

func parseHash(text string) (h hash, err error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	decoded, err := hex.DecodeString(digits)
	if !ok || err != nil || len(decoded) != len(h) {
		return h, errors.New(`hash: it is "sha256:" and 64 hexadecimal digits; signalbox token new prints one`)
	}
	if h = hash(decoded); h == sha256.Sum256(nil) {
		return h, errors.New("hash: it is the hash of the empty text, which is no token; signalbox token new prints one")
	}
	return h, nil
}

const tokenBytes = 32 // random: 256 bits

// NewToken draws a token of 256 random bits, as letters, digits, _ and -, and returns it with the block of the
// file that makes it valid. It fails for a block that a file can't have; the error begins with the key and ": ".
func NewToken(b Block) (token, block string, err error) {
	var drawn [tokenBytes]byte
	_, _ = rand.Read(drawn[:]) // never fails
	token = "sbx_" + base64.RawURLEncoding.EncodeToString(drawn[:])
	sum := sha256.Sum256([]byte(token))
	text := "sha256:" + hex.EncodeToString(sum[:])
	b.Hash = &text
	if _, err := b.check(); err != nil {
		return "", "", err
	}
	return token, b.text(), nil
}

// text returns the block as TOML. Its texts have passed check, so the form of %q is TOML too.
func (b *Block) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "[[token]]\nname = %q\nhash = %q\nscopes = %s\n", b.Name, *b.Hash, list(b.Scopes))
	if b.Prefixes != nil {
		fmt.Fprintf(&out, "prefixes = %s\n", list(*b.Prefixes))
	}
	for _, limit := range b.limits(new(Identity)) {
		if limit.value != nil {
			fmt.Fprintf(&out, "%s = %d\n", limit.key, *limit.value)
		}
	}
	return out.String()
}

// list returns texts as a TOML list.
func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

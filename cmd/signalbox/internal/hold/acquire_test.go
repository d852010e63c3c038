package hold

import (
	"strings"
	"testing"
)

func TestRunMetadataIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"make":                         "make",
		"a\x00b\nc":                    "a b c",
		"\xff":                         "?",
		strings.Repeat("é", 101):       strings.Repeat("é", 100),
		"x" + strings.Repeat("é", 100): "x" + strings.Repeat("é", 99),
	} {
		if got := plain(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}

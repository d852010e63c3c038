package declare

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       File
	}{
		{"empty", "", File{}},
		{"empty table", "[semaphores]\n", File{}},
		{"short", "[semaphores]\nA = 42\n", File{Semaphores: []Semaphore{{"A", 42, 0}}}},
		{"long, like short", "[semaphores]\nA = { max = 42, level = 0 }\n", File{Semaphores: []Semaphore{{"A", 42, 0}}}},
		{"long without level", "[semaphores]\nA = { max = 42 }\n", File{Semaphores: []Semaphore{{"A", 42, 0}}}},
		{"tables, sorted", "[semaphores.B]\nmax = 1\nlevel = -3\n[semaphores.A]\nmax = 2\n", File{Semaphores: []Semaphore{{"A", 2, 0}, {"B", 1, -3}}}},
		{"dotted", "semaphores.A.max = 7\n", File{Semaphores: []Semaphore{{"A", 7, 0}}}},
		{"names", "[semaphores]\n\"/&\" = 1\n\"a b\" = 2\n\"a.b\" = 3\n\"ä\" = 4\n", File{Semaphores: []Semaphore{{"/&", 1, 0}, {"a b", 2, 0}, {"a.b", 3, 0}, {"ä", 4, 0}}}},
		{"extremes", "[semaphores]\nA = { max = 9223372036854775807, level = 2147483647 }\nB = {max = 0, level = -2147483648}",
			File{Semaphores: []Semaphore{{"A", 1<<63 - 1, 1<<31 - 1}, {"B", 0, -1 << 31}}}},
		{"unknown keys are ignored", "litter_collection_interval = \"10ms\"\nx.y = [1]\n[semaphores]\nA = { max = 1, color = \"red\" }\n[Semaphores]\nB = 1\n[logging.gelf]\nport = 5\n",
			File{Semaphores: []Semaphore{{"A", 1, 0}}}},
		{"logging", "[logging.stderr]\nlevel = \"DEBUG\"\nx = 1\n", File{LogLevel: "debug"}},
		{"negative", "[semaphores]\nA = -5\nB = { max = -1, level = 2 }\n", File{Semaphores: []Semaphore{{"A", 0, 0}, {"B", 0, 2}}, Warnings: []string{
			`semaphore "A" is declared with -5 permits, which counts as 0`, `semaphore "B" is declared with -1 permits, which counts as 0`}}},
	} {
		got, err := Parse(c.text)
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no TOML", "[semaphores]\nA = \n", "no TOML: line 2"},
		{"twice", "[semaphores]\nA = 1\nA = 2\n", "no TOML: line 3"},
		{"float", "[semaphores]\nA = 1.0\n", `semaphores."A": write a number like 42`},
		{"text", "[semaphores]\nA = \"1\"\n", `semaphores."A": write a number like 42`},
		{"list", "[semaphores]\nA = [1]\n", `semaphores."A": write a number like 42`},
		{"too large", "[semaphores]\nA = 9223372036854775808\n", "no TOML: line 2"},
		{"no max", "[semaphores.A]\nlevel = 1\n", `semaphores."A": max is missing`},
		{"float max", "[semaphores.A]\nmax = 1.5\n", `semaphores."A": max is no integer`},
		{"text level", "[semaphores.A]\nmax = 1\nlevel = \"1\"\n", `semaphores."A": level is no integer`},
		{"high level", "[semaphores.A]\nmax = 1\nlevel = 2147483648\n", `semaphores."A": level is 2147483648: it is -2147483648 to 2147483647`},
		{"low level", "[semaphores.A]\nmax = 1\nlevel = -2147483649\n", `semaphores."A": level is -2147483649`},
		{"empty name", "[semaphores]\n\"\" = 1\n", `semaphores."": a name is 1 to 512 bytes`},
		{"control character", "[semaphores]\n\"a\\u0001\" = 1\n", `semaphores."a\x01": a name is 1 to 512 bytes`},
		{"long name", "[semaphores]\n" + strings.Repeat("a", 513) + " = 1\n", "a name is 1 to 512 bytes"},
		{"semaphores", "semaphores = 5\n", "semaphores is no table"},
		{"logging", "logging = 5\n", "logging is no table"},
		{"stderr", "[logging]\nstderr = \"INFO\"\n", "logging.stderr is no table"},
		{"no level", "[logging.stderr]\n", "logging.stderr: level is ERROR"},
		{"unknown level", "[logging.stderr]\nlevel = \"LOUD\"\n", "logging.stderr: level is ERROR"},
	} {
		_, err := Parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestReadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "throttle.toml")
	if _, err := Open(path, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, nil); err == nil || !strings.HasPrefix(err.Error(), path+": no TOML: line 1") || strings.Contains(err.Error(), "\n") {
		t.Errorf("bad: %v", err)
	}
}

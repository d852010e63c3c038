package declare

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

func given[T any](value T) fsm.Change[T] { return fsm.Change[T]{Given: true, Value: value} }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       File
	}{
		{"empty", "", File{}},
		{"empty table", "[semaphores]\n", File{}},
		{"short", "[semaphores]\nA = 42\n", File{Semaphores: []Semaphore{{Name: "A", Permits: 42, Level: 0}}}},
		{"long, like short", "[semaphores]\nA = { max = 42, level = 0 }\n", File{Semaphores: []Semaphore{{Name: "A", Permits: 42, Level: 0}}}},
		{"long without level", "[semaphores]\nA = { max = 42 }\n", File{Semaphores: []Semaphore{{Name: "A", Permits: 42, Level: 0}}}},
		{"tables, sorted", "[semaphores.B]\nmax = 1\nlevel = -3\n[semaphores.A]\nmax = 2\n", File{Semaphores: []Semaphore{{Name: "A", Permits: 2, Level: 0}, {Name: "B", Permits: 1, Level: -3}}}},
		{"dotted", "semaphores.A.max = 7\n", File{Semaphores: []Semaphore{{Name: "A", Permits: 7, Level: 0}}}},
		{"names", "[semaphores]\n\"/&\" = 1\n\"a b\" = 2\n\"a.b\" = 3\n\"ä\" = 4\n", File{Semaphores: []Semaphore{{Name: "/&", Permits: 1, Level: 0}, {Name: "a b", Permits: 2, Level: 0}, {Name: "a.b", Permits: 3, Level: 0}, {Name: "ä", Permits: 4, Level: 0}}}},
		{"extremes", "[semaphores]\nA = { max = 9223372036854775807, level = 2147483647 }\nB = {max = 0, level = -2147483648}",
			File{Semaphores: []Semaphore{{Name: "A", Permits: 1<<63 - 1, Level: 1<<31 - 1}, {Name: "B", Permits: 0, Level: -1 << 31}}}},
		{"unknown keys are ignored", "litter_collection_interval = \"10ms\"\nx.y = [1]\n[semaphores]\nA = { max = 1, color = \"red\" }\n[Semaphores]\nB = 1\n[logging.gelf]\nport = 5\n",
			File{Semaphores: []Semaphore{{Name: "A", Permits: 1, Level: 0}}, Warnings: []string{`semaphore "A" is declared with "color", which is no setting, and ignored`,
				`"Semaphores" is unknown, and ignored: the tables are semaphores and logging`,
				`"litter_collection_interval" is unknown, and ignored: the tables are semaphores and logging`,
				`"x" is unknown, and ignored: the tables are semaphores and logging`}}},
		{"cleared", "[semaphores]\nA = { max = 1, groups = \"\", per_group = 0, paused = \"\", when_full = \"\", head_start = 0, window = \"\", cooldown = 0, on_lost = 0, max_hold = \"\" }\n",
			File{Semaphores: []Semaphore{{Name: "A", Permits: 1, Settings: fsm.SettingsChange{Groups: given(fsm.NoGroups), PerGroup: given[int64](0), Paused: given(""),
				DropOldest: given(false), HeadStartMS: given[int64](0), WindowMS: given[int64](0), CooldownMS: given[int64](0), OnLostMS: given[int64](0), MaxHoldMS: given[int64](0)}}}}},
		{"logging", "[logging.stderr]\nlevel = \"DEBUG\"\nx = 1\n", File{LogLevel: "debug"}},
		{"negative", "[semaphores]\nA = -5\nB = { max = -1, level = 2 }\n", File{Semaphores: []Semaphore{{Name: "A", Permits: 0, Level: 0}, {Name: "B", Permits: 0, Level: 2}}, Warnings: []string{
			`semaphore "A" is declared with -5 permits, which counts as 0`, `semaphore "B" is declared with -1 permits, which counts as 0`}}},
		{"returns", "[semaphores]\nA = { max = 9, window = \"1m\" }\nB = { max = 1, cooldown = \"5s\", on_lost = \"quarantine\", max_hold = \"2h\", slots = true }\n" +
			"C = { max = 1, window = \"0s\", on_lost = \"release\", slots = false }\nD = { max = 1, on_lost = \"30s\" }\n",
			File{Semaphores: []Semaphore{
				{Name: "A", Permits: 9, Settings: fsm.SettingsChange{WindowMS: given[int64](60_000)}},
				{Name: "B", Permits: 1, Settings: fsm.SettingsChange{CooldownMS: given[int64](5_000), OnLostMS: given(fsm.Quarantine), MaxHoldMS: given[int64](7_200_000), Slots: given(true)}},
				{Name: "C", Permits: 1, Settings: fsm.SettingsChange{WindowMS: given[int64](0), OnLostMS: given[int64](0), Slots: given(false)}},
				{Name: "D", Permits: 1, Settings: fsm.SettingsChange{OnLostMS: given[int64](30_000)}},
			}}},
		{"settings", "[semaphores]\nA = { max = 9, groups = \"request\", per_group = 3, paused = \"drill\", max_waiting = 5, when_full = \"drop-oldest\", head_start = \"15m\" }\n" +
			"B = { max = \"none\", groups = \"owner\", per_group = 1 }\nC = { max = 1, groups = \"none\", per_group = 0, paused = \"\", max_waiting = 0, when_full = \"refuse\", head_start = \"0s\" }\n",
			File{Semaphores: []Semaphore{
				{Name: "A", Permits: 9, Settings: fsm.SettingsChange{Groups: given(fsm.ByRequest), PerGroup: given[int64](3), Paused: given("drill"),
					MaxWaiting: given[int64](5), DropOldest: given(true), HeadStartMS: given[int64](900_000)}},
				{Name: "B", Settings: fsm.SettingsChange{Family: true, Groups: given(fsm.ByOwner), PerGroup: given[int64](1)}},
				{Name: "C", Permits: 1, Settings: fsm.SettingsChange{Groups: given(fsm.NoGroups), PerGroup: given[int64](0), Paused: given(""),
					MaxWaiting: given[int64](0), DropOldest: given(false), HeadStartMS: given[int64](0)}},
			}}},
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
		{"text max", "[semaphores.A]\nmax = \"many\"\n", `semaphores."A": max is no integer`},
		{"groups", "[semaphores.A]\nmax = 1\ngroups = \"all\"\n", `semaphores."A": groups is none or owner or request`},
		{"groups as a number", "[semaphores.A]\nmax = 1\ngroups = 1\n", `semaphores."A": groups is none or owner or request`},
		{"negative per_group", "[semaphores.A]\nmax = 1\nper_group = -1\n", `semaphores."A": per_group is -1: it is 0 to 9223372036854775807`},
		{"long line", "[semaphores.A]\nmax = 1\nmax_waiting = 100001\n", `semaphores."A": max_waiting is 100001: it is 0 to 100000`},
		{"when_full", "[semaphores.A]\nmax = 1\nwhen_full = true\n", `semaphores."A": when_full is drop-oldest or refuse`},
		{"long reason", "[semaphores.A]\nmax = 1\npaused = \"" + strings.Repeat("a", 1025) + "\"\n", `semaphores."A": paused is a text of up to 1,024 bytes`},
		{"reason as truth", "[semaphores.A]\nmax = 1\npaused = true\n", `semaphores."A": paused is a text of up to 1,024 bytes`},
		{"long head start", "[semaphores.A]\nmax = 1\nhead_start = \"24h1ms\"\n", `semaphores."A": head_start is a duration like "15m", from 0s to 24h0m0s`},
		{"short window", "[semaphores.A]\nmax = 1\nwindow = \"99ms\"\n", `semaphores."A": window is a duration like "15m", from 100ms to 744h0m0s`},
		{"other end", "[semaphores.A]\nmax = 1\non_lost = \"keep\"\n", `semaphores."A": on_lost is a duration like "15m", from 1ms to 24h0m0s, or release or quarantine`},
		{"slots as a text", "[semaphores.A]\nmax = 1\nslots = \"on\"\n", `semaphores."A": slots is true or false`},
		{"negative head start", "[semaphores.A]\nmax = 1\nhead_start = \"-1s\"\n", `semaphores."A": head_start is a duration`},
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

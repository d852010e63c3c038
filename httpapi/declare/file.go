package declare

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/signalbox/signalbox/fsm"
)

// Semaphore is a semaphore that a file declares.
type Semaphore struct {
	Name     string
	Permits  int64 // not negative
	Level    int32
	Settings fsm.SettingsChange // that its table has

	ignored []string // unknown keys of its table
}

// File is the content of a file. It does not change after it was read.
type File struct {
	Semaphores []Semaphore // in the order of their names
	LogLevel   string      // "error", "warn", "info", "debug", "trace" or "off"; "" when it doesn't say
	Warnings   []string    // a sentence for each value that counts otherwise than written, and for each unknown key
}

// Read reads and checks a file. The error is one line that names the file.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err // names the file
	}
	f, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse reads the text of a file: TOML with the tables semaphores and logging.stderr. It ignores other keys, as throttle
// does, and warns about each, except below logging. The error is one line.
func Parse(text string) (*File, error) {
	var document map[string]any
	if _, err := toml.Decode(text, &document); err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("no TOML: %s", strings.TrimPrefix(line, "toml: "))
	}
	f := &File{}
	semaphores, err := table(document, "semaphores")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(semaphores)) {
		if err := f.declare(name, semaphores[name]); err != nil {
			return nil, fmt.Errorf("semaphores.%q: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(document)) {
		if name != "semaphores" && name != "logging" {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%q is unknown, and ignored: the tables are semaphores and logging", name))
		}
	}
	f.LogLevel, err = logLevel(document)
	return f, err
}

// table returns a table of the document, which may be absent.
func table(in map[string]any, name string) (map[string]any, error) {
	switch found := in[name].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return found, nil
	default:
		return nil, fmt.Errorf("%s is no table", name)
	}
}

// declare adds one semaphore: a number, or a table with max and perhaps level and settings.
func (f *File) declare(name string, value any) error {
	if !fsm.ValidName(name) {
		return fmt.Errorf("a name is 1 to 512 bytes of UTF-8 without control characters")
	}
	s := Semaphore{Name: name}
	switch v := value.(type) {
	case int64:
		s.Permits = v
	case map[string]any:
		if err := s.read(v); err != nil {
			return err
		}
	default:
		return fmt.Errorf("write a number like 42, or a table like { max = 42, level = 1 }")
	}
	if s.Permits < 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("semaphore %q is declared with %d permits, which counts as 0", name, s.Permits))
		s.Permits = 0
	}
	for _, key := range s.ignored {
		f.Warnings = append(f.Warnings, fmt.Sprintf("semaphore %q is declared with %q, which is no setting, and ignored", name, key))
	}
	s.ignored = nil // state: of a value that is being read
	f.Semaphores = append(f.Semaphores, s)
	return nil
}

func integer(in map[string]any, name string, low, high int64) (int64, error) {
	value, present := in[name]
	if !present {
		return 0, fmt.Errorf("%s is missing", name)
	}
	n, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("%s is no integer", name)
	}
	if n < low || n > high {
		return 0, fmt.Errorf("%s is %d: it is %d to %d", name, n, low, high)
	}
	return n, nil
}

// logLevel reads the level of logging.stderr.
func logLevel(document map[string]any) (string, error) {
	logging, err := table(document, "logging")
	if err != nil {
		return "", err
	}
	stderr, err := table(logging, "stderr")
	if err != nil {
		return "", fmt.Errorf("logging.%w", err)
	}
	if stderr == nil {
		return "", nil
	}
	text, ok := stderr["level"].(string)
	level := strings.ToLower(text)
	if !ok || !slices.Contains([]string{"error", "warn", "info", "debug", "trace", "off"}, level) {
		return "", fmt.Errorf("logging.stderr: level is ERROR, WARN, INFO, DEBUG, TRACE or OFF")
	}
	return level, nil
}

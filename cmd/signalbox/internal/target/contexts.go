package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// shownContexts is where the file of the contexts is by default.
const shownContexts = "~/.config/signalbox/config.toml"

// settings are the flags that a context may set.
var settings = []string{"addr", "token-file", "ca", "cert", "key", "insecure-http"}

// contextsFile is a file of contexts.
type contextsFile struct {
	Context  string                    `toml:"context"` // the one to use unless another is named
	Contexts map[string]map[string]any `toml:"contexts"`
}

// fromContext sets the flags that were not given from a context. Without --context, a
// given --addr leaves the context out: its credentials are for its own addresses.
func (f *Flags) fromContext() error {
	if f.complete {
		return nil
	}
	f.complete = true
	if f.context == "" && f.set.Changed("addr") {
		return nil
	}
	file, path, err := f.readContexts()
	if err != nil {
		return err
	}
	name := f.context
	if name == "" {
		name = file.Context
	}
	if name == "" {
		return nil
	}
	values, there := file.Contexts[name]
	if !there {
		return fmt.Errorf("--context: %s has no [contexts.%s]", path, name)
	}
	for key, value := range values {
		if err := f.setFrom(key, value, filepath.Dir(path)); err != nil {
			return fmt.Errorf("%s: [contexts.%s]: %s: %w", path, name, key, err)
		}
	}
	return nil
}

// setFrom sets a flag from a member of a context. Files are relative to the folder of the
// contexts.
func (f *Flags) setFrom(key string, value any, folder string) error {
	if !slices.Contains(settings, key) {
		return fmt.Errorf("this is not one of %s", strings.Join(settings, ", "))
	}
	text := fmt.Sprint(value)
	if list, is := value.([]any); is {
		var parts []string
		for _, one := range list {
			parts = append(parts, fmt.Sprint(one))
		}
		text = strings.Join(parts, ",")
	}
	if key != "addr" && key != "insecure-http" && !filepath.IsAbs(text) {
		text = filepath.Join(folder, text)
	}
	flag := f.set.Lookup(key)
	if flag.Changed {
		return nil
	}
	if err := f.set.Set(key, text); err != nil {
		return err
	}
	return f.set.SetAnnotation(key, ofContext, []string{"true"})
}

// ofContext annotates a flag that a context has set.
const ofContext = "signalbox-of-context"

func (f *Flags) ofContext(flag string) bool {
	return len(f.set.Lookup(flag).Annotations[ofContext]) > 0
}

// readContexts reads the file; by default there need not be one.
func (f *Flags) readContexts() (file contextsFile, path string, err error) {
	path = f.contexts
	if path == "" {
		folder, _ := f.lookup("XDG_CONFIG_HOME")
		if home, _ := f.lookup("HOME"); folder == "" && home != "" {
			folder = filepath.Join(home, ".config")
		}
		if folder == "" {
			return file, shownContexts, nil
		}
		path = filepath.Join(folder, "signalbox", "config.toml")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && f.contexts == "" {
		return file, path, nil
	}
	if err != nil {
		return file, path, fmt.Errorf("--contexts: %w", err)
	}
	read, err := toml.Decode(string(text), &file)
	if err != nil {
		return file, path, fmt.Errorf("--contexts: %s: %w", path, err)
	}
	if unknown := read.Undecoded(); len(unknown) > 0 {
		return file, path, fmt.Errorf("--contexts: %s: %s is neither context nor contexts", path, unknown[0])
	}
	return file, path, nil
}

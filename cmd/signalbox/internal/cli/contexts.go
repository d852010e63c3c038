package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"
)

const shownContexts = "~/.config/signalbox/config.toml"

// members are the flags that a context may set.
var members = []string{"addr", "token-file", "ca", "cert", "key", plainFlag}

type contextsFile struct {
	Context  string                    `toml:"context"` // the context to use by default
	Contexts map[string]map[string]any `toml:"contexts"`
}

// fromContext sets flags from a context. It overrides variables only if --context is on the command line. If --addr is
// set without --context, or if only --addr is on the command line, no context applies, because the credentials of a
// context are for its own addresses.
func (f *ClusterFlags) fromContext() error {
	if f.contextRead {
		return nil
	}
	f.contextRead = true
	addr := f.set.Lookup("addr")
	if addr.Changed && (f.context == "" || onCommandLine(addr) && !onCommandLine(f.set.Lookup("context"))) {
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
	values, ok := file.Contexts[name]
	if !ok {
		return fmt.Errorf("--context: %s has no [contexts.%s]", path, name)
	}
	if _, ok := values["addr"]; !ok && !f.stands(addr) {
		f.Addresses = slices.Clone(defaultAddresses)
	}
	f.usedContext = name
	for key, value := range values {
		if err := f.setFrom(key, value, filepath.Dir(path)); err != nil {
			return fmt.Errorf("%s: [contexts.%s]: %s: %w", path, name, key, err)
		}
	}
	return nil
}

// setFrom sets a flag from a member of a context. Paths of files are relative to the folder of the contexts' file.
func (f *ClusterFlags) setFrom(key string, value any, folder string) error {
	if !slices.Contains(members, key) {
		return fmt.Errorf("this is not one of %s", strings.Join(members, ", "))
	}
	text := fmt.Sprint(value)
	if list, ok := value.([]any); ok {
		var parts []string
		for _, item := range list {
			parts = append(parts, fmt.Sprint(item))
		}
		text = strings.Join(parts, ",")
	}
	if key != "addr" && key != plainFlag && !filepath.IsAbs(text) {
		text = filepath.Join(folder, text)
	}
	flag := f.set.Lookup(key)
	if f.stands(flag) {
		return nil
	}
	if key == "addr" {
		f.Addresses = nil // drop the addresses of a variable; Set would append to them
	}
	f.tokenOfContext = f.tokenOfContext || key == "token-file"
	return f.set.Set(key, text)
}

// onCommandLine reports whether a flag is on the command line.
func onCommandLine(flag *pflag.Flag) bool { return SourceOf(flag) == "flag" }

// stands reports whether a flag keeps its value although the context has another value for it.
func (f *ClusterFlags) stands(flag *pflag.Flag) bool {
	return onCommandLine(flag) || flag.Changed && !onCommandLine(f.set.Lookup("context"))
}

// readContexts reads the file of contexts. If the default file does not exist, there are no contexts.
func (f *ClusterFlags) readContexts() (file contextsFile, path string, err error) {
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

package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestSources: if both a context and an address are given, the stronger source decides which cluster is used. No token
// is sent to addresses for which it is not meant.
func TestSources(t *testing.T) {
	home := t.TempDir()
	folder := filepath.Join(home, ".config", "signalbox")
	writeContexts(t, folder)
	other := filepath.Join(folder, "other.token")
	type variables map[string]string
	for _, c := range []struct {
		name      string
		arguments string
		variables variables
		ports     string // of the addresses
		token     string // or the name of its file
		handedOn  string // to the command of run, beside the addresses
	}{
		{"the file's own", "", nil, "1", "home.token", ""},
		{"a context by flag, an address by variable", "--context production", variables{"ADDR": "http://127.0.0.1:9"}, "2,3", "production.token", ""},
		{"a context by variable, an address by flag", "--addr http://127.0.0.1:9", variables{"CONTEXT": "production"}, "9", "", "SIGNALBOX_CONTEXT="},
		{"both by flag", "--addr http://127.0.0.1:9 --context production", nil, "9", "production.token", ""},
		{"both by variable", "", variables{"ADDR": "http://127.0.0.1:9", "CONTEXT": "production"}, "9", "production.token", ""},
		{"the file's own, and an address by variable", "", variables{"ADDR": "http://127.0.0.1:9"}, "9", "", ""},
		{"a context by flag, another by variable", "--context production", variables{"CONTEXT": "home"}, "2,3", "production.token", "SIGNALBOX_CONTEXT="},
		{"a context by flag, a token by variable", "--context production", variables{"API_TOKEN": "abc"}, "2,3", "production.token", "SIGNALBOX_API_TOKEN="},
		{"a token by its variable, and the earlier name of that", "", variables{"API_TOKEN": "abc", "TOKEN": "def"}, "1", "abc", ""},
		{"a context by variable, a token by variable", "", variables{"CONTEXT": "production", "TOKEN": "abc"}, "2,3", "abc", ""},
		{"the file's own, and a token by variable", "", variables{"TOKEN": "abc"}, "1", "abc", ""},
		{"a context by flag without a token, which a variable has", "--context open", variables{"TOKEN": "abc"}, "4", "abc", ""},
		{"a context by flag, a file by variable", "--context production", variables{"TOKEN_FILE": other}, "2,3", "production.token", "SIGNALBOX_TOKEN_FILE="},
		{"a context by variable, a file by variable", "", variables{"CONTEXT": "production", "TOKEN_FILE": other}, "2,3", "other.token", ""},
		{"a context by flag, a file by flag", "--context production --token-file " + other, nil, "2,3", "other.token", ""},
		{"an address by flag, cells by variable", "--addr http://127.0.0.1:9", variables{"CELLS": "/cells.toml"}, "9", "", "SIGNALBOX_CELLS="},
		{"a context without addresses, and one by variable", "--context bare", variables{"ADDR": "http://127.0.0.1:9"}, "8701", "bare.token", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := pflag.NewFlagSet("test", pflag.ContinueOnError)
			lookup := func(name string) (string, bool) {
				if name == "HOME" {
					return home, true
				}
				value, there := c.variables[strings.TrimPrefix(name, "SIGNALBOX_")]
				return value, there
			}
			f := AddClusterFlags(set, lookup)
			must(t, set.Parse(strings.Fields(c.arguments)))
			must(t, ApplyVariables(set, lookup))
			cfg, err := f.Client()
			must(t, err)
			if got := strings.ReplaceAll(strings.Join(cfg.Addresses, ","), "http://127.0.0.1:", ""); got != c.ports {
				t.Errorf("addresses %s, wanted %s", got, c.ports)
			}
			token := cfg.Token
			if cfg.TokenFile != "" {
				token += filepath.Base(cfg.TokenFile)
			}
			if token != c.token {
				t.Errorf("it sends the token %q, wanted %q", token, c.token)
			}
			want := []string{"SIGNALBOX_ADDR=" + strings.Join(cfg.Addresses, ",")}
			if c.handedOn != "" {
				want = append(want, c.handedOn)
			}
			if got := f.Environment(); !slices.Equal(got, want) {
				t.Errorf("hands on %q, wanted %q; its own variables %v", got, want, slices.Sorted(maps.Keys(c.variables)))
			}
		})
	}
}

// writeContexts writes a file with four contexts, and the tokens that they name.
func writeContexts(t *testing.T, folder string) {
	t.Helper()
	must(t, os.MkdirAll(folder, 0o700))
	for name, text := range map[string]string{
		"config.toml": `context = "home"
[contexts.home]
addr = "http://127.0.0.1:1"
token-file = "home.token"
[contexts.production]
addr = ["http://127.0.0.1:2", "http://127.0.0.1:3"]
token-file = "production.token"
[contexts.bare]
token-file = "bare.token"
[contexts.open]
addr = "http://127.0.0.1:4"
`, "home.token": "h", "production.token": "p", "bare.token": "b", "other.token": "o"} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
}

// TestEnvironmentHasNoToken: the environment for another program has no user of an address, in each form of an address.
func TestEnvironmentHasNoToken(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:8701":          "http://127.0.0.1:8701",
		"n1:8701":                        "n1:8701",
		"s3cret@127.0.0.1:8701":          "http://127.0.0.1:8701",
		"http://me:s3cret@127.0.0.1/box": "http://127.0.0.1/box",
		"s3cret%zz@127.0.0.1:8701":       "",
	} {
		f := flags(t, "", "--addr", address)
		if got := f.Environment(); len(got) != 1 || got[0] != "SIGNALBOX_ADDR="+want {
			t.Errorf("%s is handed on as %q", address, got)
		}
	}
}

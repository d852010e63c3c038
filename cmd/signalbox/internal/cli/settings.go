package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"
)

const prefix = "SIGNALBOX_"

// Variable returns the environment variable of a flag, for example SIGNALBOX_NODE_ID of --node-id.
func Variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// InsteadOf annotates a flag with the flags that it replaces.
const InsteadOf = "signalbox-instead-of"

const noVariable = "signalbox-no-variable"

// WithoutVariable makes ApplyVariables skip a flag.
func WithoutVariable(flags *pflag.FlagSet, name string) {
	_ = flags.SetAnnotation(name, noVariable, []string{"true"}) // fails only for an unknown flag
}

// source annotates a flag with the origin of its value.
const source = "signalbox-source"

// ApplyVariables sets each flag that is not on the command line from its environment variable. An empty variable counts
// as not set, as in most compose files. A flag is skipped if another flag on the command line replaces it (see
// InsteadOf), since a container image may set variables that don't fit, and if it is marked by WithoutVariable.
func ApplyVariables(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed []error
	replaced := replacedFlags(flags)
	flags.VisitAll(func(flag *pflag.Flag) {
		value, set := lookup(Variable(flag.Name))
		if flag.Changed || replaced[flag.Name] || !set || value == "" || flag.Name == "help" || flag.Name == "version" || flag.Annotations[noVariable] != nil {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", Variable(flag.Name), err))
		}
		_ = flags.SetAnnotation(flag.Name, source, []string{Variable(flag.Name)}) // fails only for an unknown flag
	})
	return errors.Join(failed...)
}

// replacedFlags returns the flags that are replaced by the flags set so far.
func replacedFlags(flags *pflag.FlagSet) map[string]bool {
	replaced := map[string]bool{}
	flags.Visit(func(flag *pflag.Flag) {
		if text := flag.Value.String(); text != "" && text != "false" {
			for _, name := range flag.Annotations[InsteadOf] {
				replaced[name] = true
			}
		}
	})
	return replaced
}

// ApplyFile sets each flag that was not set by the command line or a variable. The TOML file has lines such as node-id
// = "n1"; a list may be an array. Unknown flags in it are an error, and so are the flags named in except.
func ApplyFile(flags *pflag.FlagSet, path string, except ...string) error {
	var values map[string]any
	if _, err := toml.DecodeFile(path, &values); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var failed []error
	replaced := replacedFlags(flags)
	for name, value := range values {
		flag := flags.Lookup(name)
		if flag == nil || slices.Contains(append(except, "help", "version"), name) {
			failed = append(failed, fmt.Errorf("%s: %q is no setting%s", path, name, meant(name, names(flags))))
			continue
		}
		if flag.Changed || replaced[name] {
			continue
		}
		text, err := textOf(value)
		if err == nil {
			err = flags.Set(name, text)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %s: %w", path, name, err))
		}
		_ = flags.SetAnnotation(name, source, []string{path}) // fails only for an unknown flag
	}
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(failed...)
}

// textOf returns a TOML value as text for a flag.
func textOf(value any) (string, error) {
	switch v := value.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		var parts []string
		for _, item := range v {
			text, ok := item.(string)
			if !ok || strings.Contains(text, ",") {
				return "", fmt.Errorf("%v is no text without commas", item)
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("a setting is a text, a number, true or false, or a list of texts")
}

// SourceOf returns the origin of a flag's value: "default", "flag", the name of a variable, or the path of a file.
func SourceOf(flag *pflag.Flag) string {
	switch from := flag.Annotations[source]; {
	case len(from) > 0:
		return from[0]
	case flag.Changed:
		return "flag"
	}
	return "default"
}

// PrintFlags prints the flags, except those in except, as a file for ApplyFile. Each has a comment with its source.
// Flags with their default value are commented out.
func PrintFlags(w io.Writer, flags *pflag.FlagSet, except ...string) error {
	var failed error
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Name == "help" || flag.Name == "version" || slices.Contains(except, flag.Name) {
			return
		}
		var value any = flag.Value.String()
		switch v := flag.Value.(type) {
		case pflag.SliceValue:
			value = append([]string{}, v.GetSlice()...)
		default:
			if kind := flag.Value.Type(); kind == "bool" || kind == "int" || kind == "int64" {
				value = json.RawMessage(flag.Value.String())
			}
		}
		text, err := json.Marshal(value) // texts, numbers and arrays have the same form in TOML
		if err == nil {
			comment := ""
			if !flag.Changed { // else ApplyFile would count a default as set
				comment = "# "
			}
			_, err = fmt.Fprintf(w, "%s%s = %s # %s\n", comment, flag.Name, text, SourceOf(flag))
		}
		failed = errors.Join(failed, err)
	})
	return failed
}

func names(flags *pflag.FlagSet) (all []string) {
	flags.VisitAll(func(flag *pflag.Flag) { all = append(all, flag.Name) })
	return all
}

// kubernetes matches the variables that Kubernetes sets for services called signalbox….
var kubernetes = regexp.MustCompile(`^SIGNALBOX_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$`)

// Mistyped returns an error for each variable (name=value) that begins with SIGNALBOX_ but belongs to no flag and is
// not in others. A name in others that ends in _ is a prefix.
func Mistyped(environment []string, flags, others []string) error {
	known := slices.Clone(others)
	for _, flag := range flags {
		known = append(known, Variable(flag))
	}
	inKubernetes := slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, "KUBERNETES_SERVICE_HOST=") })
	var failed []error
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, prefix) || value == "" || slices.Contains(known, name) || inKubernetes && kubernetes.MatchString(name) {
			continue
		}
		if slices.ContainsFunc(others, func(other string) bool { return strings.HasSuffix(other, "_") && strings.HasPrefix(name, other) }) {
			continue
		}
		failed = append(failed, fmt.Errorf("the variable %s is no setting%s", name, meant(name, known)))
	}
	return errors.Join(failed...)
}

// meant returns the name that is most similar to a mistyped name, or "" if no name is similar.
func meant(name string, all []string) string {
	best, shortest := "", 4
	for _, candidate := range all {
		if d := distance(name, candidate); d < shortest {
			best, shortest = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance returns how many characters must be added, removed or replaced to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

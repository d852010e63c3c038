package rules

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/licences.md anew")

// licenceTexts is how each licence is recognized that a module may have: all of the texts stand in
// its file, where a run of spaces and newlines counts as one space.
var licenceTexts = []struct {
	name  string
	texts []string
}{
	{"MPL-2.0", []string{"Mozilla Public License", "2.0", "Covered Software"}},
	{"Apache-2.0", []string{"Apache License", "Version 2.0, January 2004"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms", "2. Redistributions in binary form"}},
	{"MIT", []string{"Permission is hereby granted, free of charge", "without restriction"}},
}

// foreignLicences are phrases of licences that ask for more than a notice. A file that has
// one is refused whatever else it has.
var foreignLicences = []string{"GNU GENERAL PUBLIC", "GNU LESSER", "GNU AFFERO", "Server Side Public License", "Business Source License", "Commons Clause", "Elastic License"}

// fileCopyleft names the modules that may have a licence which binds changes of their own
// files (MPL-2.0). Signalbox uses them unchanged.
var fileCopyleft = []string{
	"github.com/hashicorp/go-immutable-radix", "github.com/hashicorp/golang-lru", "github.com/hashicorp/raft",
	"github.com/hashicorp/raft-boltdb/v2", "pgregory.net/rapid",
}

const licencesPage = "docs/licences.md"

// TestLicences compares docs/licences.md with the licence of every module that the program or its tests are built from.
func TestLicences(t *testing.T) {
	product, all := modules(t, "-deps", "./cmd/signalbox", module+"/client/..."), modules(t, "-deps", "-test", "-tags", "processes,compose,browser", "./...", module+"/client/...")
	parts := map[string][]string{} // the modules by licence
	for _, module := range slices.Sorted(maps.Keys(all)) {
		licence, err := licenceOf(module, all[module])
		if err != nil {
			t.Error(err)
			continue
		}
		if product[module] == "" {
			licence += ", of tests alone"
		}
		parts[licence] = append(parts[licence], "`"+module+"`")
	}
	page := "# Licences\n\nThe modules of Signalbox on Linux, beside Go's own library (BSD-3-Clause). `make licences` writes this page. MPL-2.0\n" +
		"binds changes of a module's own files; Signalbox changes no file.\n\n"
	for _, licence := range slices.Sorted(maps.Keys(parts)) {
		page += fmt.Sprintf("* %s: %s\n", licence, strings.Join(parts[licence], ", "))
	}
	if *update {
		must(t, os.WriteFile(licencesPage, []byte(page), 0o644))
	}
	if old, _ := os.ReadFile(licencesPage); string(old) != page {
		t.Errorf("%s is not up to date: run make licences", licencesPage)
	}
}

// modules returns the folders of the modules that packages come from, by their paths,
// but for Signalbox and its client.
func modules(t *testing.T, args ...string) map[string]string {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}"}, args...)...)
	list.Env, list.Stderr = append(os.Environ(), "GOOS=linux", "GOARCH=amd64"), os.Stderr // alike on all machines
	out, err := list.Output()
	must(t, err)
	folders := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, folder, any := strings.Cut(strings.TrimSpace(line), " "); any && name != module+"/client" {
			folders[name] = folder
		}
	}
	if len(folders) < 10 {
		t.Fatalf("only %d modules found: the rule would hold for nothing", len(folders))
	}
	return folders
}

// licenceOf returns the licence of a module in a folder, or why it may not be used.
func licenceOf(module, folder string) (string, error) {
	var files []string
	for _, pattern := range []string{"LICEN[CS]E*", "COPYING*"} {
		found, _ := filepath.Glob(filepath.Join(folder, pattern)) // the pattern is sound
		files = append(files, found...)
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no file with its licence", module)
	}
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name, err := classify(strings.Join(strings.Fields(string(text)), " "))
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", module, filepath.Base(file), err)
		}
		if name == "MPL-2.0" && !slices.Contains(fileCopyleft, module) {
			return "", fmt.Errorf("%s: %s has file-wise copyleft: decide whether it may be used, and name the module in fileCopyleft", module, filepath.Base(file))
		}
		found[name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", "), nil
}

// classify returns the name of a licence.
func classify(text string) (string, error) {
	for _, phrase := range foreignLicences {
		// The MPL names such licences, as those that its users may choose as well.
		if i := strings.Index(strings.ToUpper(text), strings.ToUpper(phrase)); i >= 0 && !strings.Contains(text, "Covered Software") {
			return "", fmt.Errorf("it says %q, which asks for more than a notice", text[i:i+len(phrase)])
		}
	}
	for _, l := range licenceTexts {
		if !slices.ContainsFunc(l.texts, func(part string) bool { return !strings.Contains(text, part) }) {
			return l.name, nil
		}
	}
	return "", fmt.Errorf("the licence is not known: add how it is recognized, or leave the module out")
}

// TestLicencesCanBeRefused: an unknown licence, none, copyleft, and copyleft of files in a
// module that is not listed.
func TestLicencesCanBeRefused(t *testing.T) {
	const mit = "Permission is hereby granted, free of charge, to any person,\nto deal without restriction"
	for name, c := range map[string]struct{ file, text, want string }{
		"none":         {"README.md", mit, "no file"},
		"unknown":      {"LICENSE", "All rights reserved.", "not known"},
		"copyleft":     {"COPYING", mit + "\nGNU Affero General Public License", "asks for more"},
		"of files":     {"LICENSE.txt", "Mozilla Public License 2.0: Covered Software", "fileCopyleft"},
		"MIT, to pass": {"LICENSE.md", mit, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			must(t, os.WriteFile(filepath.Join(folder, c.file), []byte(c.text), 0o600))
			licence, err := licenceOf("example.org/m", folder)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v", licence, err)
			}
		})
	}
}

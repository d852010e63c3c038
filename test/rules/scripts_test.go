package rules

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the containers publish is for this machine alone unless asked otherwise, as
// the API has no authentication; and they tell which version they were built from.
func TestComposeFile(t *testing.T) {
	compose, err := os.ReadFile("docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	ports := regexp.MustCompile(`(?m)^ +ports: (.*)$`).FindAllStringSubmatch(string(compose), -1)
	if len(ports) != 3 {
		t.Errorf("%d services publish ports", len(ports))
	}
	for _, p := range ports {
		if !strings.HasPrefix(p[1], `["${SIGNALBOX_BIND:-127.0.0.1}:`) || strings.Contains(p[1], ",") {
			t.Errorf("published: %s", p[1])
		}
	}
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^ +VERSION: \$\{SIGNALBOX_VERSION:-\}$`).Match(compose) || !strings.Contains(string(dockerfile), "\nARG VERSION=\n") {
		t.Error("the version is not handed to the build")
	}
}

// TestCommitOfTheImage: without an argument the image is stamped with the commit that is checked out.
func TestCommitOfTheImage(t *testing.T) {
	script, err := os.ReadFile("scripts/commit.sh")
	if err != nil {
		t.Fatal(err)
	}
	const id = "0123456789abcdef0123456789abcdef01234567"
	for name, files := range map[string]map[string]string{
		"detached":           {".git/HEAD": id},
		"branch":             {".git/HEAD": "ref: refs/heads/a/b", ".git/refs/heads/a/b": id},
		"packed":             {".git/HEAD": "ref: refs/heads/main", ".git/packed-refs": "# pack-refs with: peeled\n" + strings.Repeat("f", 40) + " refs/heads/main2\n" + id + " refs/heads/main"},
		"linked work tree":   {".git": "gitdir: elsewhere"},
		"no checkout":        {},
		"a ref that is gone": {".git/HEAD": "ref: refs/heads/none"},
	} {
		dir, want := t.TempDir(), ""
		files["scripts/commit.sh"] = string(script)
		for file, text := range files {
			if strings.Contains(text, id) {
				want = id[:12]
			}
			path := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := exec.Command("sh", filepath.Join(dir, "scripts/commit.sh")).Output(); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestImagePlatforms: the image is compiled on the machine's own architecture for another one,
// and the classic builder, which sets no arguments for that, can parse the file.
func TestImagePlatforms(t *testing.T) {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"FROM --platform=${BUILDPLATFORM:-linux} golang:1.26-bookworm AS build", "ARG TARGETOS", "ARG TARGETARCH", "FROM scratch"} {
		if !strings.Contains(string(dockerfile), "\n"+line+"\n") {
			t.Errorf("the Dockerfile has no line %q", line)
		}
	}
	if !strings.Contains(string(dockerfile), "GOOS=$TARGETOS GOARCH=$TARGETARCH go build") {
		t.Error("the program is not compiled for the platform of the image")
	}
}

// TestReleaseScript: a release is made of a tag alone, of the version that its source has.
func TestReleaseScript(t *testing.T) {
	script, err := os.ReadFile("scripts/release.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, arguments ...string) (string, error) {
		command := exec.Command(name, arguments...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		output, err := command.CombinedOutput()
		return string(output), err
	}
	commit := func(tag string) {
		t.Helper()
		for _, arguments := range [][]string{{"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", tag}, {"tag", tag}} {
			if output, err := run("git", arguments...); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
		}
	}
	if output, err := run("git", "init", "-q"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	write("scripts/release.sh", string(script))
	write("scripts/dist.sh", "#!/bin/sh\necho reached with $VERSION >&2; exit 9\n")
	write("cmd/signalbox/inspect.go", "package main\n\nconst release = \"1.2.3\"\n")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")
	commit("v1.2.3-rc.1")
	refused := func(tag, fault string) {
		t.Helper()
		output, err := run("bash", "scripts/release.sh", tag)
		if err == nil || !strings.Contains(output, fault) {
			t.Errorf("%s: %v: %s", tag, err, output)
		}
	}
	refused("v1.2.3-rc.1", "reached with v1.2.3-rc.1-0-g") // all is well so far
	refused("main", "not of the form")
	refused("v9.9.9", "there is no tag")
	write("unrelated", "1")
	commit("v1.2.3")
	refused("v1.2.3", "has no section 1.2.3")
	write("unrelated", "2")
	commit("v1.3.0")
	refused("v1.3.0", "another version")
}

// TestVulnerabilitiesScript: a finding fails, and so does an error of the tool. Without
// the tool or its database the script says that it has checked nothing.
func TestVulnerabilitiesScript(t *testing.T) {
	for name, c := range map[string]struct {
		builds bool
		output string
		fails  bool
		unsaid bool // NOT CHECKED is printed
	}{
		"none":        {builds: true, output: "No vulnerabilities found."},
		"one":         {builds: true, output: "GO-2026-0001", fails: true},
		"no database": {builds: true, output: "govulncheck: fetching vulnerabilities: no such host", unsaid: true, fails: true},
		"no tool":     {unsaid: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fake := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *-version) exit %d;; esac\necho '%s'; exit %d\n", number(!c.builds), c.output, number(c.fails))
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o755); err != nil {
				t.Fatal(err)
			}
			script := exec.Command("bash", "scripts/vulnerabilities.sh")
			script.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			output, err := script.CombinedOutput()
			if passed := !c.fails || c.unsaid; (err == nil) != passed || strings.Contains(string(output), "NOT CHECKED") != c.unsaid {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

// number returns an exit status.
func number(failed bool) int {
	if failed {
		return 1
	}
	return 0
}

// A package whose tests don't compile must fail the fuzzing, not be left out.
func TestFuzzScriptFails(t *testing.T) {
	script, err := os.ReadFile("scripts/fuzz.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const target = "package %\n\nimport \"testing\"\n\nfunc FuzzIt(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }\n"
	files := map[string]string{
		"scripts/fuzz.sh": string(script), "go.mod": "module m\n\ngo 1.26\n",
		"a/a_test.go": strings.ReplaceAll(target, "%", "a"),
		"b/b.go":      "package b\n", // has no test: not a fault
	}
	run := func() (string, error) {
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		output, err := exec.Command("bash", filepath.Join(dir, "scripts/fuzz.sh"), "1x").CombinedOutput()
		return string(output), err
	}
	if output, err := run(); err != nil || !strings.Contains(output, "1 targets fuzzed") {
		t.Fatalf("%v: %s", err, output)
	}
	files["c/c_test.go"] = strings.ReplaceAll(target, "%", "c") + "var broken int = \"\"\n"
	if output, err := run(); err == nil {
		t.Errorf("status 0 with a package that does not compile: %s", output)
	}
	files["c/c_test.go"] = strings.ReplaceAll(target, "%", "c") + "func init() { panic(\"no targets\") }\n"
	if output, err := run(); err == nil {
		t.Errorf("status 0 with a package whose tests panic before they are listed: %s", output)
	}
}

// A program that someone built here, or a data folder, would be in every clone for ever.
func TestTrackedFilesAreSmall(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("not a clone")
	}
	listed, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	const most = 256 << 10
	names := strings.Split(strings.TrimSuffix(string(listed), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("git lists %d files", len(names))
	}
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes, more than %d: generated files stay out of git", name, info.Size(), most)
		}
	}
}

// TestOneScript: one test is run with the tags of all tests, and it is a failure that none ran.
func TestOneScript(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		status int
		fails  bool
	}{
		"passes":       {output: "=== RUN   TestComposeFile"},
		"fails":        {output: "=== RUN   TestComposeFile", status: 1, fails: true},
		"none has run": {output: "testing: warning: no tests to run", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fake := fmt.Sprintf("#!/bin/sh\necho \"$@\"\necho '%s'\nexit %d\n", c.output, c.status)
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o755); err != nil {
				t.Fatal(err)
			}
			script := exec.Command("bash", "scripts/one.sh", "TestComposeFile")
			script.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			output, err := script.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(output), "-tags processes,compose,browser") {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

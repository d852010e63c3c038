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

// text returns the text of a file of the project.
func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	must(t, err)
	return string(content)
}

func script(t *testing.T, name string) string { return text(t, "scripts/"+name) }

// place writes a file, which may be run, and the folders above it.
func place(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)))
}

// withGo runs a script of the project with a program go that is a shell script.
func withGo(t *testing.T, shell string, arguments ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	place(t, dir, "go", "#!/bin/sh\n"+shell)
	command := exec.Command("bash", arguments...)
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	return string(output), err
}

// What the containers publish is for this machine alone unless asked otherwise, as
// the API has no authentication; and they tell which version they were built from.
func TestComposeFile(t *testing.T) {
	compose, dockerfile := text(t, "docker-compose.yml"), text(t, "Dockerfile")
	ports := regexp.MustCompile(`(?m)^ +ports: (.*)$`).FindAllStringSubmatch(compose, -1)
	if len(ports) != 3 {
		t.Errorf("%d services publish ports", len(ports))
	}
	for _, p := range ports {
		if !strings.HasPrefix(p[1], `["${SIGNALBOX_BIND:-127.0.0.1}:`) || strings.Contains(p[1], ",") {
			t.Errorf("published: %s", p[1])
		}
	}
	if !regexp.MustCompile(`(?m)^ +VERSION: \$\{SIGNALBOX_VERSION:-\}$`).MatchString(compose) || !strings.Contains(dockerfile, "\nARG VERSION=\n") {
		t.Error("the version is not handed to the build")
	}
}

// TestCommitOfTheImage: without an argument the image is stamped with the commit that is checked out.
func TestCommitOfTheImage(t *testing.T) {
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
		place(t, dir, "scripts/commit.sh", script(t, "commit.sh"))
		for file, text := range files {
			if strings.Contains(text, id) {
				want = id[:12]
			}
			place(t, dir, file, text+"\n")
		}
		if got, err := exec.Command("sh", filepath.Join(dir, "scripts/commit.sh")).Output(); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestImagePlatforms: the image is compiled on the machine's own architecture for another one,
// and the classic builder, which sets no arguments for that, can parse the file.
func TestImagePlatforms(t *testing.T) {
	dockerfile := text(t, "Dockerfile")
	for _, line := range []string{"FROM --platform=${BUILDPLATFORM:-linux} golang:1.26-bookworm AS build", "ARG TARGETOS", "ARG TARGETARCH", "FROM scratch", "  org.opencontainers.image.licenses=MIT org.opencontainers.image.version=$VERSION"} {
		if !strings.Contains(dockerfile, "\n"+line+"\n") {
			t.Errorf("the Dockerfile has no line %q", line)
		}
	}
	if !strings.Contains(dockerfile, "GOOS=$TARGETOS GOARCH=$TARGETARCH go build") {
		t.Error("the program is not compiled for the platform of the image")
	}
}

// TestOneVersion: all that carries a version has the version of the program; packages and images take it from the tag.
func TestOneVersion(t *testing.T) {
	want := regexp.MustCompile(`const release = "(\d+\.\d+\.\d+)"`).FindStringSubmatch(text(t, "cmd/signalbox/inspect.go"))
	if want == nil {
		t.Fatal("cmd/signalbox/inspect.go has no version")
	}
	for name, form := range map[string]string{
		"go.mod":                              `signalbox/client v(.*)`,
		"packaging/helm/signalbox/Chart.yaml": `(?m)^(?:version|appVersion): (.*)$`,
		"client/python/signalbox/__init__.py": `__version__ = "(.*)"`,
		"httpapi/v1/openapi.json":             `"version": "(.*)"`,
		"CHANGELOG.md":                        `\A# Changelog\n[^#]*\n## (.*)`,
		"docs/install.md":                     `signalbox[_-](\d+\.\d+\.\d+)`,
	} {
		found := regexp.MustCompile(form).FindAllStringSubmatch(text(t, name), -1)
		if len(found) == 0 {
			t.Errorf("%s has no version", name)
		}
		for _, version := range found {
			if version[1] != want[1] {
				t.Errorf("%s has the version %s, and the program %s", name, version[1], want[1])
			}
		}
	}
}

// TestReleaseScript: a release is made of a tag alone, of the version that its source has.
func TestReleaseScript(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { place(t, dir, name, text) }
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
	write("scripts/release.sh", script(t, "release.sh"))
	write("scripts/dist.sh", "#!/bin/sh\necho reached with $VERSION >&2; exit 9\n")
	write("cmd/signalbox/inspect.go", "package main\n\nconst release = \"1.2.3\"\n")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")
	commit("v1.2.3-rc.1")
	refused := func(tag, fault string, flags ...string) {
		t.Helper()
		output, err := run("bash", append([]string{"scripts/release.sh", tag}, flags...)...)
		if err == nil || !strings.Contains(output, fault) {
			t.Errorf("%s %v: %v: %s", tag, flags, err, output)
		}
	}
	refused("v1.2.3-rc.1", "reached with v1.2.3-rc.1-0-g") // all is well so far
	refused("main", "not of the form")
	refused("v9.9.9", "there is no tag")
	refused("v1.2.3-rc.2", "reached with v1.2.3-rc.2-0-g", "--dry-run")
	refused("v9.9.9", "another version", "--dry-run")
	refused("v1.2.3-rc.1", "usage", "--dryrun")
	if output, err := run("git", "tag"); err != nil || output != "v1.2.3-rc.1\n" {
		t.Errorf("after the dry runs the tags are %q, %v", output, err)
	}
	write("unrelated", "1")
	commit("v1.2.3")
	refused("v1.2.3", "has no section 1.2.3")
	write("unrelated", "2")
	commit("v1.3.0")
	refused("v1.3.0", "another version")
}

// TestReleaseCheck: a release is refused if a file has changed, if the checksums lack a file, and if another key has signed.
func TestReleaseCheck(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("NOT CHECKED: ssh-keygen is missing")
	}
	dir, keys := t.TempDir(), t.TempDir()
	inDir := func(shell string) {
		t.Helper()
		command := exec.Command("bash", "-c", shell)
		command.Dir, command.Env = dir, append(os.Environ(), "KEYS="+keys)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", shell, err, output)
		}
	}
	check := func(want string) {
		t.Helper()
		output, err := exec.Command("bash", "scripts/release-check.sh", dir, filepath.Join(keys, "ours.pub")).CombinedOutput()
		if err == nil || !strings.Contains(string(output), want) {
			t.Errorf("%v: %s\nwant %s", err, output, want)
		}
	}
	inDir("echo 1 >signalbox-1.2.3.cdx.json; echo 1 >other; sha256sum * >SHA256SUMS")
	inDir("for key in ours theirs; do ssh-keygen -q -t ed25519 -N '' -f $KEYS/$key; done")
	const sign = "ssh-keygen -q -Y sign -n file -f $KEYS/"
	inDir(sign + "ours SHA256SUMS")
	check("signature: good") // there is no archive, which is the next thing that it looks for
	inDir("rm *.sig; " + sign + "theirs SHA256SUMS")
	check("FAILED: the signature")
	inDir("echo 2 >other")
	check("FAILED: SHA256SUMS")
	inDir("echo 1 >other; echo 1 >more")
	check("FAILED: SHA256SUMS is not of the files of the folder")
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
			fake := fmt.Sprintf("case \"$*\" in *-version) exit %d;; esac\necho '%s'; exit %d\n", number(!c.builds), c.output, number(c.fails))
			output, err := withGo(t, fake, "scripts/vulnerabilities.sh")
			if passed := !c.fails || c.unsaid; (err == nil) != passed || strings.Contains(output, "NOT CHECKED") != c.unsaid {
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
	dir := t.TempDir()
	const target = "package %\n\nimport \"testing\"\n\nfunc FuzzIt(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }\n"
	files := map[string]string{
		"scripts/fuzz.sh": script(t, "fuzz.sh"), "go.mod": "module m\n\ngo 1.26\n",
		"a/a_test.go": strings.ReplaceAll(target, "%", "a"),
		"b/b.go":      "package b\n", // has no test: not a fault
	}
	run := func() (string, error) {
		for name, text := range files {
			place(t, dir, name, text)
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
	listed, err := exec.Command("scripts/files.sh").Output()
	must(t, err)
	const limit = 320 << 10
	names := strings.Split(strings.TrimSuffix(string(listed), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("%d files are listed", len(names))
	}
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Size() > limit {
			t.Errorf("%s has %d bytes, more than %d: generated files stay out of git", name, info.Size(), limit)
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
			fake := fmt.Sprintf("echo \"$@\"\necho '%s'\nexit %d\n", c.output, c.status)
			output, err := withGo(t, fake, "scripts/one.sh", "TestComposeFile")
			if (err != nil) != c.fails || !strings.Contains(output, "-tags processes,compose,browser") {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

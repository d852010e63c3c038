package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// verdict is what the tests say of a fault.
type verdict int

const (
	survived verdict = iota // all tests pass
	caught                  // a test fails
	hung                    // a test does not end in time
	invalid                 // the faulty program does not build
	untested                // no test runs, or one fails without the fault
)

func (v verdict) String() string {
	return [...]string{"SURVIVED", "caught", "HUNG", "INVALID", "UNTESTED"}[v]
}

// outcome is the end of one run.
type outcome struct {
	verdict verdict
	test    string // the first that failed
	detail  string // the end of the output, if no test caught the fault

	processor time.Duration // that the tests took
}

// runner runs tests of a copy of the tree. Faults go into the copy itself, so that tests which
// build programs of the tree's files see them as well.
type runner struct {
	root     string        // of the copy
	timeout  time.Duration // of the tests of one fault
	quick    bool          // leave the slow tests out
	parallel int           // faults tested at a time
	builds   int
	faulty   map[string]string // the files with faults in them, and their content without; "" for none
}

// program is the tests of one folder, built with faults.
type program struct {
	folder  string
	binary  string
	texts   map[string]string // its files with faults in them, by path
	inForce map[int]string    // by number of a fault in it: the value of the selector
	invalid map[int]string    // the errors of those that do not build
}

// source is a file as it is, with the faults of it.
type source struct {
	content string
	changes []change
}

// build builds the tests of a folder once with all faults of the given files, by path from
// the root. The changes that can't be combined with others are left: each needs a build of
// its own.
func (r *runner) build(ctx context.Context, folder string, files map[string]source) (p program, left map[string]source, err error) {
	p = program{folder: folder, inForce: map[int]string{}, invalid: map[int]string{}}
	left = map[string]source{}
	for range 10 { // each build finds some that are invalid
		texts, clones := map[string]string{}, map[string][]clone{}
		clear(left)
		for file, s := range files {
			valid := slices.DeleteFunc(slices.Clone(s.changes), func(c change) bool { return p.invalid[c.number] != "" })
			combined, made, alone, err := combine(file, s.content, valid)
			if err != nil {
				return p, nil, err
			}
			texts[file], clones[file] = combined, made
			if len(alone) > 0 {
				left[file] = source{s.content, alone}
			}
			found, err := functionsOf(file, s.content)
			if err != nil {
				return p, nil, err
			}
			texts[path.Join(path.Dir(file), "fault_in_force.go")] = inForce(found.packageName)
			for _, c := range made {
				p.inForce[c.number] = strconv.Itoa(c.number)
			}
		}
		printed, err := r.compile(ctx, folder, texts, &p)
		if err == nil {
			return p, left, nil
		}
		known := len(p.invalid)
		p.blame(printed, clones)
		if len(p.invalid) == known {
			return p, nil, fmt.Errorf("%s with faults does not build: %w: %s", folder, err, printed)
		}
	}
	return p, nil, errors.New("too many faults do not build")
}

// alone builds the tests of a folder with one change in place.
func (r *runner) alone(ctx context.Context, folder, file string, c change) (program, error) {
	p := program{folder: folder, inForce: map[int]string{c.number: "0"}, invalid: map[int]string{}}
	printed, err := r.compile(ctx, folder, map[string]string{file: c.content}, &p)
	if err != nil && ctx.Err() == nil {
		p.invalid[c.number], err = printed, nil
	}
	return p, err
}

// compile puts files with faults into the copy and builds the tests of a folder.
func (r *runner) compile(ctx context.Context, folder string, texts map[string]string, p *program) (printed string, err error) {
	p.texts = texts
	if err := r.put(texts); err != nil {
		return "", err
	}
	r.builds++
	p.binary = filepath.Join(r.root, fmt.Sprintf("faulty%d.test", r.builds))
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-trimpath", "-buildvcs=false", "-gcflags=-e", "-ldflags=-s -w", "-o", p.binary, "github.com/signalbox/signalbox/"+folder)
	command.Dir = r.root
	output, err := command.CombinedOutput()
	return string(output), err
}

// put puts files with faults into the copy, those before them out of it.
func (r *runner) put(texts map[string]string) error {
	if err := r.mend(); err != nil {
		return err
	}
	for file, text := range texts {
		at := filepath.Join(r.root, filepath.FromSlash(file))
		before, err := os.ReadFile(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.faulty[file] = string(before)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mend takes all faults out of the copy.
func (r *runner) mend() (err error) {
	for file, content := range r.faulty {
		at := filepath.Join(r.root, filepath.FromSlash(file))
		if content == "" {
			err = errors.Join(err, os.Remove(at))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(content), 0o600))
		}
	}
	r.faulty = map[string]string{}
	return err
}

// copyTree copies the files of a tree, without its history.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch at := filepath.Join(to, inside); {
		case entry.IsDir() && (inside == ".git" || inside == "bin"):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(at, 0o700)
		case entry.Type().IsRegular():
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			return os.WriteFile(at, content, info.Mode().Perm()|0o600)
		}
		return nil
	})
}

var compilerError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+)(?::\d+)?: (.+)$`)

// blame finds the faults whose clones have errors of the compiler.
func (p *program) blame(printed string, clones map[string][]clone) {
	for _, found := range compilerError.FindAllStringSubmatch(printed, -1) {
		line, err := strconv.Atoi(found[2])
		for _, c := range clones[path.Clean(filepath.ToSlash(found[1]))] {
			if err == nil && c.first <= line && line <= c.last {
				p.invalid[c.number] = found[3]
			}
		}
	}
}

// options are for the tests of a folder. Tests of random sequences neither look for a
// shorter one that fails nor keep it for the next fault.
var options = map[string][]string{"fsm": {"-rapid.nofailfile", "-rapid.shrinktime=0"}}

// limited runs a program within seconds of processor time, however busy the machine is.
const limited = `ulimit -t "$0" && exec "$@"`

// run runs tests of the program with a fault in force, 0 for none, within a processor time.
func (p program) run(ctx context.Context, r *runner, number int, t tests, within time.Duration) outcome {
	arguments := append([]string{"tool", "test2json", "sh", "-c", limited, strconv.Itoa(int(within.Seconds())), p.binary,
		"-test.v=test2json", "-test.timeout=" + r.timeout.String(), "-test.failfast"}, options[p.folder]...)
	if t.run != "" {
		arguments = append(arguments, "-test.run="+t.run)
	}
	if t.skip != "" {
		arguments = append(arguments, "-test.skip="+t.skip)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout+time.Minute) // the tests end themselves, and print which of them hangs
	defer cancel()
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = filepath.Join(r.root, filepath.FromSlash(p.folder))
	command.Env = append(os.Environ(), selector+"="+p.inForce[number], "PWD="+command.Dir)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	err := command.Run()
	o := judge(&printed)
	if command.ProcessState != nil {
		o.processor = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	}
	switch {
	case err != nil && o.processor >= within:
		o.verdict = hung
	case err != nil && o.verdict == survived:
		o.verdict, o.test = caught, "(the package: "+o.detail+")"
	}
	return o
}

// baseline is what tests do without a fault, each run once.
type baseline struct {
	of    program
	mu    sync.Mutex
	found map[tests]outcome
}

// run runs tests without a fault, beside a program whose faults are in the copy. It returns an
// error if they do not pass.
func (b *baseline) run(ctx context.Context, r *runner, t tests, beside program) (o outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, known := b.found[t]
	if !known {
		if beside.binary != b.of.binary {
			if err := r.put(b.of.texts); err != nil {
				return o, err
			}
			defer func() { err = errors.Join(err, r.put(beside.texts)) }()
		}
		o = b.of.run(ctx, r, 0, t, r.timeout)
		b.found[t] = o
	}
	if o.verdict != survived {
		return o, errors.Join(ctx.Err(), fmt.Errorf("%s %s without a fault: %v %s: %s", t.folder, t.run, o.verdict, o.test, o.detail))
	}
	return o, nil
}

// event is one line of go test -json, see go doc test2json.
type event struct{ Action, Test, Output string }

// judge reads the output of tests as JSON.
func judge(printed *bytes.Buffer) (o outcome) {
	var output strings.Builder
	ran, late := false, false
	lines := bufio.NewScanner(printed)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			output.WriteString(lines.Text() + "\n")
			continue
		}
		output.WriteString(e.Output)
		ran = ran || e.Action == "run"
		late = late || strings.HasPrefix(e.Output, "panic: test timed out")
		if e.Action == "fail" && o.verdict == survived {
			o.verdict, o.test = caught, e.Test
		}
	}
	switch {
	case late:
		o.verdict = hung
	case !ran && o.verdict == survived:
		o.verdict = untested
	case o.verdict == caught && o.test == "":
		o.test = "(the package: " + lastLines(output.String(), 2) + ")"
	}
	o.detail = lastLines(output.String(), 5)
	return o
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], " | ")
}

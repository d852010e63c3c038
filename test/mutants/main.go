package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) (err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "run only the listed faults with this `text` in their name or file")
	count := flags.Int("random", 0, "run this `number` of random faults instead of the listed ones")
	numbers := flags.String("numbers", "", "run only these `numbers` of the random faults, such as 7,20-40: a run can be made in parts")
	quick := flags.Bool("quick", false, "run only the tests that take little time")
	parallel := flags.Int("parallel", 1, "test this `number` of faults at a time")
	seed := flags.Uint64("seed", 0, "choose the random faults by this `number`")
	timeout := flags.Duration("timeout", 5*time.Minute, "the `time` that the tests of one fault may take")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	file, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := copyTree(filepath.Dir(strings.TrimSpace(string(file))), scratch); err != nil {
		return err
	}
	r := &runner{root: scratch, timeout: *timeout, quick: *quick, parallel: *parallel}
	if *count > 0 {
		folders := flags.Args()
		if len(folders) == 0 {
			folders = defaultFolders
		}
		which, err := parseNumbers(*numbers, *count)
		if err != nil {
			return err
		}
		return r.random(ctx, folders, *seed, which)
	}
	return r.listed(ctx, *only)
}

// listed runs the listed faults, those that the same folder tests together, and prints
// a line for each. It returns an error if a fault is not caught.
func (r *runner) listed(ctx context.Context, only string) error {
	faults, err := readFaults(filepath.Join(r.root, listFolder))
	if err != nil {
		return err
	}
	started, sum := time.Now(), map[verdict]int{}
	var folders []string
	groups := map[string][]job{}
	for i, f := range faults {
		if only != "" && !strings.Contains(f.name, only) && !strings.Contains(f.file, only) {
			continue
		}
		content, faulty, err := f.read(r.root)
		if err != nil {
			return err
		}
		if groups[f.tests.folder] == nil {
			folders = append(folders, f.tests.folder)
		}
		groups[f.tests.folder] = append(groups[f.tests.folder],
			job{file: f.file, content: content, name: f.file + ": " + f.name, change: change{i + 1, faulty}, stages: f.tests.stages()})
	}
	for _, folder := range folders {
		err := r.each(ctx, folder, groups[folder], func(j job, o outcome) {
			sum[o.verdict]++
			o.print(j.name)
		})
		if err != nil {
			return err
		}
	}
	return total(sum, time.Since(started))
}

// job is one fault to run, and the tests to run one after the other until one fails.
type job struct {
	file, content string
	change        change
	name          string
	stages        []tests
}

// each runs jobs of one folder's tests and calls report for each.
func (r *runner) each(ctx context.Context, folder string, jobs []job, report func(job, outcome)) error {
	files := map[string]source{}
	for _, j := range jobs {
		files[j.file] = source{j.content, append(files[j.file].changes, j.change)}
	}
	together, left, err := r.build(ctx, folder, files)
	if err != nil {
		return err
	}
	rest := map[string][]change{}
	for file, s := range left {
		rest[file] = s.changes
	}
	sound := &baseline{of: together, found: map[tests]outcome{}}
	alone := func(j job) bool {
		return slices.ContainsFunc(rest[j.file], func(c change) bool { return c.number == j.change.number })
	}
	var reporting sync.Mutex
	runs, stopped := errgroup.WithContext(ctx)
	runs.SetLimit(r.parallel)
	for _, j := range jobs {
		if alone(j) {
			continue
		}
		runs.Go(func() error {
			o, err := r.stages(stopped, together, j, sound)
			if err != nil {
				return err
			}
			reporting.Lock()
			defer reporting.Unlock()
			report(j, o)
			return nil
		})
	}
	if err := runs.Wait(); err != nil {
		return err
	}
	for _, j := range jobs {
		if !alone(j) {
			continue
		}
		p, err := r.alone(ctx, folder, j.file, j.change)
		if err != nil {
			return err
		}
		o, err := r.stages(ctx, p, j, sound)
		if err != nil {
			return err
		}
		report(j, o)
	}
	return nil
}

// stages runs the tests of a job until one catches its fault. These tests must pass without it,
// and the processor time that they take then bounds what they may take with it.
func (r *runner) stages(ctx context.Context, p program, j job, sound *baseline) (o outcome, err error) {
	if reason, ok := p.invalid[j.change.number]; ok {
		return outcome{verdict: invalid, detail: reason}, nil
	}
	for _, t := range j.stages {
		if r.quick && slices.Contains(slow[t.folder], t.run) {
			break
		}
		s, err := sound.run(ctx, r, t, p)
		if err != nil {
			return o, err
		}
		if o = p.run(ctx, r, j.change.number, t, 10*time.Second+5*s.processor); o.verdict != survived {
			break
		}
	}
	return o, ctx.Err()
}

func (o outcome) print(fault string) {
	fmt.Printf("%-8s %6.1f s  %s\n%20s%s\n", o.verdict, o.processor.Seconds(), fault, "", o.test)
	if o.verdict > caught && o.detail != "" {
		fmt.Printf("%20s%s\n", "", o.detail)
	}
}

// total prints how many faults were caught, and returns an error if one was not.
func total(sum map[verdict]int, took time.Duration) error {
	all := 0
	for _, n := range sum {
		all += n
	}
	fmt.Printf("\n%d faults, %d caught, %d survived, %d hung, %d invalid, %d untested, in %v\n", all,
		sum[caught], sum[survived], sum[hung], sum[invalid], sum[untested], took.Round(time.Second))
	if all == 0 || sum[caught] < all {
		return errors.New("not every fault was caught")
	}
	return nil
}

//go:build processes && linux

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestExamples runs the programs of the folder examples against three nodes.
func TestExamples(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	programs := t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", programs, "github.com/signalbox/signalbox/client/examples/...")
	build.Dir = filepath.Join("..", "..")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	_, c, _ := startDev(ctx, t, 3)
	for _, example := range []struct {
		program   string
		arguments []string
		words     []string
	}{
		{"cron-lock", []string{"-at-least", "10ms", "--", "echo", "the", "job"}, []string{"the job"}},
		{"worker-pool", nil, []string{"item 1\n", "item 10\n", "all items are done"}},
		{"fenced-write", nil, []string{"the second writer has written", "the first writer was refused"}},
		{"rate-limit", []string{"-period", "200ms", "-calls", "3"}, []string{"call 3"}},
		{"tenant-pool", nil, []string{"16 jobs are done, never more than 3 of a tenant and 4 in all at once\n"}},
		// The tenant acme has settled its first two calls, so its third call is within its tokens. Its fourth call
		// exceeds its requests.
		{"model-gateway", nil, []string{strings.Repeat("acme: 200 Trains run on rails. (523 tokens)\n", 3) + "globex: 200 ", "\nacme: 429 "}},
	} {
		t.Run(example.program, func(t *testing.T) {
			command := exec.CommandContext(ctx, filepath.Join(programs, example.program), example.arguments...)
			command.Env = append(os.Environ(), "SIGNALBOX_ADDR="+strings.Join(c.bases, ","))
			output, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, output)
			}
			for _, words := range example.words {
				if !strings.Contains(string(output), words) {
					t.Errorf("%q is not in its output:\n%s", words, output)
				}
			}
		})
	}
	listed, err := filepath.Glob("../../client/examples/*/main.go")
	if err != nil || len(listed) != 6 {
		t.Errorf("%d examples exist (%v); this test runs 6", len(listed), err)
	}
}

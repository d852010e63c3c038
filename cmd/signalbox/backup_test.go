package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackupAndRestoreCommands: after a backup of three nodes and a change, a restore through any one node, leader or
// follower, brings back the state of the backup on all three. Scheduled backups run meanwhile.
func TestBackupAndRestoreCommands(t *testing.T) {
	folder := t.TempDir()
	_, c, _ := startDev(t.Context(), t, 3)
	c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusCreated)
	addr := "--addr=" + strings.Join(c.bases, ",")
	file := filepath.Join(folder, "a.backup")
	well(t, "backup", file, addr)
	for _, base := range c.bases {
		c.must(t, 0, http.MethodDelete, semaphorePath("db"), "", http.StatusNoContent)
		if out := well(t, "restore", file, "--addr="+base, "--yes"); !strings.HasPrefix(out, "restored, at index ") {
			t.Errorf("restore printed %q", out)
		}
		for node := range 3 {
			c.must(t, node, http.MethodGet, semaphorePath("db"), "", http.StatusOK)
		}
	}
}

// well runs a subcommand that must succeed, and returns what it printed.
func well(t *testing.T, arguments ...string) string {
	t.Helper()
	got := command(t, arguments)
	if got.status != 0 {
		t.Fatalf("signalbox %s: status %d: %s", strings.Join(arguments, " "), got.status, got.stderr)
	}
	return got.stdout
}

// TestHungFolderHoldsUpNoStop: a stop waits only backupGrace for work that does not end.
func TestHungFolderHoldsUpNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, hangs := make(chan struct{}), 0
		end := inBackground(func(context.Context) { <-hung }, func() { hangs++ })
		began := time.Now()
		if end(); hangs != 1 || time.Since(began) != backupGrace {
			t.Errorf("%d warnings after %v", hangs, time.Since(began))
		}
		close(hung)
		heeds := inBackground(func(ctx context.Context) { <-ctx.Done() }, func() { hangs++ })
		began = time.Now()
		if heeds(); hangs != 1 || time.Since(began) != 0 {
			t.Errorf("work that heeds its end: %d warnings after %v", hangs, time.Since(began))
		}
	})
}

// TestScheduledBackups: a node with a schedule makes a backup at once and shows its age. The backups do not delay the
// stop of the node.
func TestScheduledBackups(t *testing.T) {
	folder := t.TempDir()
	port := freePorts(t, 0, peerOffset)
	_ = startInProcess(t.Context(), t, "serve", "--ephemeral", "--http", "127.0.0.1:"+fmt.Sprint(port), "--peer", "127.0.0.1:"+fmt.Sprint(port+peerOffset),
		"--backup-dir", folder, "--backup-every", "1s", "--backup-keep", "2")
	eventually(t, 20*time.Second, func() error {
		made, err := filepath.Glob(filepath.Join(folder, "signalbox-*.backup"))
		if err != nil || len(made) < 2 {
			return fmt.Errorf("%d backups, %v", len(made), err)
		}
		return nil
	})
	c := newClient("http://127.0.0.1:" + fmt.Sprint(port))
	if page := metricsOf(t, c); strings.Contains(page, "\nsignalbox_backups_taken_total 0\n") || strings.Contains(page, "\nsignalbox_backup_bytes 0\n") ||
		!strings.Contains(page, "\nsignalbox_backup_failures_total 0\n") {
		t.Error("the metrics don't show the backups")
	}
}

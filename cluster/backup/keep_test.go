package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store/archive"
)

// kept is a keeper of a cluster that a test moves.
type kept struct {
	*Keeper
	folder string

	mu    sync.Mutex
	leads bool
	err   error
	index uint64
}

// state returns a state of a cluster at an index.
func state(cluster byte, index uint64, more ...fsm.Command) *fsm.Machine {
	m := fsm.New()
	first := fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{cluster}, Level: fsm.FeatureLevel}
	encoded := [][]byte{fsm.Envelope{}.Encode(first)}
	for _, c := range more {
		encoded = append(encoded, fsm.Envelope{}.Encode(c))
	}
	m.Apply(index, fsm.EncodeEntry(0, encoded))
	return m
}

// keeping runs a keeper of a node that leads, in virtual time, until the test ends.
func keeping(t *testing.T, folder string, keep int) *kept {
	t.Helper()
	k := &kept{folder: folder, leads: true}
	var err error
	k.Keeper, err = NewKeeper(KeeperConfig{
		Folder: folder, Every: time.Hour, Keep: keep, Logger: hclog.NewNullLogger(),
		Leads: func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.leads },
		Backup: func(context.Context) (*Backup, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.index++
			return Of(state(1, k.index).Freeze(), time.Now()), k.err
		},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return k
}

func (k *kept) set(leads bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leads, k.err = leads, err
}

// counted returns the value of a counter or a gauge.
func (k *kept) counted(t *testing.T, name string) (value float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(k.Collectors()...)
	families, err := registry.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			value = f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return value
}

// files lists the backups, each verified, by the end of their names.
func (k *kept) files(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(k.folder)
	must(t, err)
	var names []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".backup") {
			continue
		}
		if _, _, err := archive.Verify(filepath.Join(k.folder, entry.Name())); err != nil {
			t.Errorf("%s: %v", entry.Name(), err)
		}
		names = append(names, strings.TrimPrefix(entry.Name(), "signalbox-01000000000000000000000000000000-"))
	}
	return strings.Join(names, " ")
}

// TestKeeperKeepsTheNewest: one each hour, at once when no file is there, and no more than
// asked for. Other files stay.
func TestKeeperKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		other := filepath.Join(folder, "signalbox-02000000000000000000000000000000-19990101T000000Z-1.backup")
		if _, _, err := archive.Save(other, Of(state(2, 1).Freeze(), time.Now()).Write); err != nil {
			t.Fatal(err)
		}
		k := keeping(t, folder, 3)
		for _, want := range []string{
			"20000101T000000Z-1.backup", "20000101T000000Z-1.backup 20000101T010000Z-2.backup",
			"20000101T000000Z-1.backup 20000101T010000Z-2.backup 20000101T020000Z-3.backup",
			"20000101T010000Z-2.backup 20000101T020000Z-3.backup 20000101T030000Z-4.backup",
		} {
			time.Sleep(30 * time.Minute) // virtual
			if got := k.files(t); got != want+" "+filepath.Base(other) {
				t.Errorf("the folder has %s, want %s", got, want)
			}
			if age := k.age(); age < 1700 || age > 1900 {
				t.Errorf("age %v s", age)
			}
			time.Sleep(30 * time.Minute) // virtual
		}
		if k.counted(t, "signalbox_backups_taken_total") < 4 || k.counted(t, "signalbox_backup_failures_total") != 0 || k.counted(t, "signalbox_backup_bytes") == 0 {
			t.Errorf("%v taken, %v failed", k.counted(t, "signalbox_backups_taken_total"), k.counted(t, "signalbox_backup_failures_total"))
		}
	})
}

// TestBackupsOfTheFutureDoNotCount: a file of a clock that was wrong holds up no backup, takes
// no other one's place, and stays.
func TestBackupsOfTheFutureDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		future := "20990101T000000Z-1.backup"
		wrong := filepath.Join(folder, "signalbox-01000000000000000000000000000000-"+future)
		if _, _, err := archive.Save(wrong, Of(state(1, 1).Freeze(), time.Now()).Write); err != nil {
			t.Fatal(err)
		}
		k := keeping(t, folder, 1)
		k.noteLatest(time.Now().Add(100*time.Hour), 1) // made before the clock was put right
		time.Sleep(90 * time.Minute)                   // virtual
		if got := k.files(t); got != "20000101T010000Z-2.backup "+future {
			t.Errorf("the folder has %s", got)
		}
		if age := k.age(); age < 1700 || age > 1900 {
			t.Errorf("age %v s", age)
		}
	})
}

// TestKeeperOfALeaderAlone: a node that does not lead makes no file. A new leader continues the schedule that it finds
// in a shared folder.
func TestKeeperOfALeaderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		first, second := keeping(t, folder, 9), keeping(t, folder, 9)
		second.set(false, nil)
		time.Sleep(40 * time.Minute) // virtual
		first.set(false, nil)
		second.set(true, nil)
		time.Sleep(10 * time.Minute) // virtual
		if got := second.files(t); got != "20000101T000000Z-1.backup" || first.age() != 0 || second.age() < 2900 {
			t.Errorf("before the next is due: %s, ages %v and %v", got, first.age(), second.age())
		}
		time.Sleep(11 * time.Minute) // virtual
		if got := len(strings.Fields(second.files(t))); got != 2 {
			t.Errorf("%d backups: %s", got, second.files(t))
		}
	})
}

// TestFailedBackupIsTriedAgain, and leaves no file.
func TestFailedBackupIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeping(t, t.TempDir(), 3)
		k.set(true, errors.New("no leader"))
		time.Sleep(10*time.Minute + time.Second) // virtual: the first one may have gone well
		before := k.counted(t, "signalbox_backup_failures_total")
		time.Sleep(time.Hour) // virtual
		if failed := k.counted(t, "signalbox_backup_failures_total") - before; failed < 5 || failed > 61 {
			t.Errorf("%v failures in an hour", failed)
		}
		k.set(true, nil)
		time.Sleep(2 * time.Minute) // virtual
		if age := k.age(); age < 0 || age > 130 {
			t.Errorf("age %v s after it went well", age)
		}
	})
}

// TestKeeperCleansUp what a crash has left, once it is old.
func TestKeeperCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": time.Hour} {
			path := filepath.Join(folder, fmt.Sprintf(".signalbox-%s.part", name))
			must(t, os.WriteFile(path, []byte("x"), 0o600))
			if at := time.Now().Add(-age); os.Chtimes(path, at, at) != nil {
				t.Fatal("no times")
			}
		}
		k := keeping(t, folder, 3)
		time.Sleep(time.Minute) // virtual
		left, err := filepath.Glob(filepath.Join(folder, ".signalbox-*"))
		if err != nil || len(left) != 1 || !strings.Contains(left[0], "new") || k.files(t) == "" {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestKeeperNeedsAFolder(t *testing.T) {
	if _, err := NewKeeper(KeeperConfig{Folder: filepath.Join(t.TempDir(), "none"), Logger: hclog.NewNullLogger()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

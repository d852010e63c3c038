package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store/archive"
)

const (
	// retryAfter is the pause after a failed backup, unless the next backup is due sooner.
	retryAfter = time.Minute
	// checkEvery is how often a keeper checks whether its node leads and a backup is due.
	checkEvery = time.Second
	// tempAge is the age at which prune removes an incomplete file, since only a crash leaves one.
	tempAge = 24 * time.Hour
	// skew is how far the time in a file's name may be ahead of this node's clock. A file from further in the future
	// does not count, because no backup would be due until that time. A wrong clock has made it.
	skew = time.Minute
	// stampForm is the format of the time in the name of a file.
	stampForm = "20060102T150405Z"
)

// KeeperConfig says when and where a keeper makes backups. All fields are needed.
type KeeperConfig struct {
	Folder string // for the backups; several nodes may share it; "": make no backups
	Every  time.Duration
	Keep   int // the number of backups to keep
	// Leads reports whether this node leads. It must not block.
	Leads func() bool
	// Backup returns the state of the cluster.
	Backup func(context.Context) (*Backup, error)
	Logger hclog.Logger
}

// Keeper makes a backup when one is due and its node leads, and removes the oldest backups. File names begin with the
// id of the cluster, so that clusters may share the folder. Safe for concurrent use.
type Keeper struct {
	config          KeeperConfig
	taken, failures prometheus.Counter

	mu   sync.Mutex
	last time.Time // when the newest backup in the folder was begun; zero: no backup is known
	size int64     // of the newest backup, in bytes
}

// NewKeeper returns a keeper, which makes backups during Run. It fails if it can't write to the folder.
func NewKeeper(config KeeperConfig) (*Keeper, error) {
	if config.Folder != "" {
		probe, err := os.CreateTemp(config.Folder, ".signalbox-*.part")
		if err != nil {
			return nil, err
		}
		if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
			return nil, err
		}
	}
	config.Logger = config.Logger.Named("backup")
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "signalbox_" + name, Help: help})
	}
	return &Keeper{config: config,
		taken:    counter("backups_taken_total", "Scheduled backups that this node has made."),
		failures: counter("backup_failures_total", "Scheduled backups of this node that failed. Each is tried again."),
	}, nil
}

// Collectors returns the metrics of the keeper.
func (k *Keeper) Collectors() []prometheus.Collector {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "signalbox_" + name, Help: help}, read)
	}
	return []prometheus.Collector{k.taken, k.failures,
		gauge("backup_age_seconds", "On the node that leads: how long ago the newest scheduled backup in its folder was begun; -1 if there is none. Elsewhere, and without a schedule, 0.", k.age),
		gauge("backup_bytes", "Size of the newest scheduled backup that this node has found or made.", func() float64 {
			k.mu.Lock()
			defer k.mu.Unlock()
			return float64(k.size)
		}),
	}
}

func (k *Keeper) age() float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.config.Folder == "" || !k.config.Leads():
		return 0
	case k.last.IsZero():
		return -1
	}
	return max(0, time.Since(k.last).Seconds())
}

// Run makes backups until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for pause := time.Duration(0); wake.Pause(ctx, pause) == nil; {
		pause = checkEvery
		if k.config.Folder == "" {
			return
		}
		if !k.config.Leads() {
			continue
		}
		switch saved, err := k.backUp(ctx); {
		case err != nil && ctx.Err() == nil:
			k.failures.Inc()
			pause = min(retryAfter, k.config.Every)
			k.config.Logger.Error("a scheduled backup failed; it is tried again", "folder", k.config.Folder, "error", err, "again_in", pause)
		case saved:
			k.taken.Inc()
		}
	}
}

// backUp makes a backup if one is due. Backups by other nodes in the same folder count.
func (k *Keeper) backUp(ctx context.Context) (saved bool, err error) {
	if last := k.latest(); counts(last) && time.Since(last) < k.config.Every {
		return false, nil
	}
	b, err := k.config.Backup(ctx)
	if err != nil {
		return false, err
	}
	cluster := fsm.ClusterID(b.Header.Cluster).String()
	files, err := k.list(cluster)
	if err != nil {
		return false, err
	}
	if len(files) > 0 && time.Since(files[0].began) < k.config.Every { // another node has made a backup
		k.noteLatest(files[0].began, files[0].size)
		return false, nil
	}
	name := filepath.Join(k.config.Folder, fmt.Sprintf("signalbox-%s-%s-%d.backup", cluster, b.Header.WallTime.Format(stampForm), b.Header.Index))
	_, size, err := archive.Save(name, func(w io.Writer) error { return b.Write(cancelledWriter{ctx, w}) })
	if err != nil {
		return false, err
	}
	k.noteLatest(b.Header.WallTime, size)
	k.config.Logger.Info("a scheduled backup is made", "file", name, "index", b.Header.Index, "bytes", size)
	return true, k.prune(cluster)
}

// cancelledWriter fails once ctx has ended, so that a stopping node does not wait for a large backup.
type cancelledWriter struct {
	ctx context.Context
	io.Writer
}

func (w cancelledWriter) Write(part []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.Writer.Write(part)
}

// counts reports whether the time of a backup is not too far in the future (see skew).
func counts(began time.Time) bool { return time.Until(began) <= skew }

func (k *Keeper) latest() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

func (k *Keeper) noteLatest(began time.Time, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last, k.size = began, size
}

type backupFile struct {
	name  string
	began time.Time
	size  int64
}

var fileName = regexp.MustCompile(`^signalbox-([0-9a-f]{32})-(\d{8}T\d{6}Z)-\d+\.backup$`)

// list returns the backups of a cluster, the newest first, without backups from the future.
func (k *Keeper) list(cluster string) (files []backupFile, err error) {
	entries, err := os.ReadDir(k.config.Folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		parts := fileName.FindStringSubmatch(entry.Name())
		if parts == nil || parts[1] != cluster {
			continue
		}
		began, err := time.Parse(stampForm, parts[2])
		info, removed := entry.Info()
		if err == nil && removed == nil && counts(began) {
			files = append(files, backupFile{entry.Name(), began, info.Size()})
		}
	}
	slices.SortFunc(files, func(a, b backupFile) int { return cmp.Or(b.began.Compare(a.began), cmp.Compare(b.name, a.name)) })
	return files, nil
}

// prune removes the oldest backups of a cluster beyond config.Keep, and incomplete files after crashes.
func (k *Keeper) prune(cluster string) error {
	files, err := k.list(cluster)
	if err != nil {
		return err
	}
	var errs []error
	for i := k.config.Keep; i < len(files); i++ {
		errs = append(errs, remove(k.config.Folder, files[i].name))
	}
	entries, err := os.ReadDir(k.config.Folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if info, err := entry.Info(); archive.IsTemporary(entry.Name()) && err == nil && time.Since(info.ModTime()) > tempAge {
			errs = append(errs, remove(k.config.Folder, entry.Name()))
		}
	}
	return errors.Join(errs...)
}

// remove removes a file. It succeeds if another node has already removed the file.
func remove(folder, name string) error {
	if err := os.Remove(filepath.Join(folder, name)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

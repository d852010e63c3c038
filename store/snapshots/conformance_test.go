package snapshots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/storetest"
)

// snapshotKind is a raft.SnapshotStore under the same tests as the others. The
// library's file store is the reference: what holds for it must hold for ours.
type snapshotKind struct {
	name string
	// open returns the store of a folder, and what closes it; the same folder
	// may be opened again after that.
	open    func(t *testing.T, folder string) (raft.SnapshotStore, func())
	durable bool
	// ours is false for the file store, of which we don't ask what Raft doesn't.
	ours bool
}

var snapshotKinds = []snapshotKind{
	{name: "bolt", durable: true, ours: true, open: func(t *testing.T, folder string) (raft.SnapshotStore, func()) {
		s := openSnapshots(t, folder)
		return s, func() { s.close(t) }
	}},
	{name: "memory", ours: true, open: func(*testing.T, string) (raft.SnapshotStore, func()) { return NewMemory(new(atomic.Uint64)), func() {} }},
	{name: "file", durable: true, open: func(t *testing.T, folder string) (raft.SnapshotStore, func()) {
		s, err := raft.NewFileSnapshotStoreWithLogger(folder, maxKept, hclog.NewNullLogger())
		storetest.Must(t, err)
		return s, func() {}
	}},
}

// eachSnapshotKind runs a test over each kind, in a new folder.
func eachSnapshotKind(t *testing.T, test func(t *testing.T, kind snapshotKind, folder string)) {
	for _, kind := range snapshotKinds {
		t.Run(kind.name, func(t *testing.T) { test(t, kind, t.TempDir()) })
	}
}

func TestSnapshotOfAnySizeIsReadAsWritten(t *testing.T) {
	sizes := []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, chunksPerWrite * chunkBytes, chunksPerWrite*chunkBytes + 1, 9<<20 + 12345}
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, done := kind.open(t, folder)
		for i, size := range sizes {
			content := storetest.Bytes(uint64(i), size)
			sink, err := snapshots.Create(1, uint64(10+i), 3, storetest.Configuration(), 7, storetest.NoTransport(t))
			storetest.Must(t, err)
			// Writes of odd lengths, so that chunks end in the middle of one.
			if _, err := io.CopyBuffer(sink, onlyReader{bytes.NewReader(content)}, make([]byte, 100_003)); err != nil {
				t.Fatal(err)
			}
			storetest.Must(t, sink.Close())
			if kind.durable {
				done()
				snapshots, done = kind.open(t, folder)
			}
			meta, read := storetest.ReadSnapshot(t, snapshots, sink.ID())
			if !bytes.Equal(read, content) {
				t.Errorf("%d bytes were written and %d others read", size, len(read))
			}
			want := raft.SnapshotMeta{Version: 1, ID: sink.ID(), Index: uint64(10 + i), Term: 3, ConfigurationIndex: 7, Size: int64(size)}
			for _, got := range []*raft.SnapshotMeta{meta, firstListed(t, snapshots)} {
				if !slices.Equal(got.Configuration.Servers, storetest.Configuration().Servers) {
					t.Errorf("the configuration is %+v", got.Configuration)
				}
				plain := *got
				plain.Configuration, plain.Peers = raft.Configuration{}, nil
				if fmt.Sprint(plain) != fmt.Sprint(want) {
					t.Errorf("the metadata is %+v, want %+v", plain, want)
				}
			}
		}
		done()
	})
}

// onlyReader hides that a reader could write itself out at once.
type onlyReader struct{ io.Reader }

func firstListed(t *testing.T, snapshots raft.SnapshotStore) *raft.SnapshotMeta {
	t.Helper()
	metas, err := snapshots.List()
	if err != nil || len(metas) == 0 {
		t.Fatalf("listed are %v, error %v", metas, err)
	}
	return metas[0]
}

// TestSnapshotReaderIsAGoodReader reads one in all the ways that a reader may be
// read in.
func TestSnapshotReaderIsAGoodReader(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, _ := kind.open(t, folder)
		content := storetest.Bytes(1, 2*chunkBytes+777)
		id := storetest.TakeSnapshot(t, snapshots, 1, 1, content)
		_, reader, err := snapshots.Open(id)
		storetest.Must(t, err)
		if err := iotest.TestReader(reader, content); err != nil {
			t.Error(err)
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSnapshotsAreListedNewestFirstAndTwoAreKept(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, done := kind.open(t, folder)
		storetest.WantListed(t, snapshots)
		for _, step := range []struct {
			term, index uint64
			want        []string
		}{
			{1, 10, []string{"1-10"}},
			{1, 9, []string{"1-10", "1-9"}},
			{2, 30, []string{"2-30", "1-10"}},
			{2, 100, []string{"2-100", "2-30"}},
			{3, 101, []string{"3-101", "2-100"}},
		} {
			storetest.TakeSnapshot(t, snapshots, step.index, step.term, []byte("state"))
			if kind.durable {
				done()
				snapshots, done = kind.open(t, folder)
			}
			storetest.WantListed(t, snapshots, step.want...)
		}
		done()
	})
}

// TestSameIndexTwice: the later one is the newer one, also when both are made in
// the same millisecond: recover writes one at the index of the last.
func TestSameIndexTwice(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		if !kind.ours {
			t.Skip("the file store names both alike within a millisecond")
		}
		snapshots, done := kind.open(t, folder)
		var ids []string
		for i := range 20 {
			id := storetest.TakeSnapshot(t, snapshots, 5, 1, []byte{byte(i)})
			if slices.Contains(ids, id) {
				t.Fatalf("%s was given out twice", id)
			}
			ids = append(ids, id)
			if kind.durable && i == 10 {
				done()
				snapshots, done = kind.open(t, folder)
			}
			if _, content := storetest.ReadSnapshot(t, snapshots, firstListed(t, snapshots).ID); content[0] != byte(i) {
				t.Fatalf("after snapshot %d, %d is listed first", i, content[0])
			}
		}
		done()
	})
}

func TestUnfinishedSnapshotIsNotThere(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, done := kind.open(t, folder)
		storetest.TakeSnapshot(t, snapshots, 1, 1, []byte("state"))
		sink, err := snapshots.Create(1, 2, 1, storetest.Configuration(), 1, storetest.NoTransport(t))
		storetest.Must(t, err)
		if _, err := sink.Write(storetest.Bytes(2, 5<<20)); err != nil {
			t.Fatal(err)
		}
		storetest.WantListed(t, snapshots, "1-1")
		if _, _, err := snapshots.Open(sink.ID()); err == nil {
			t.Error("an unfinished snapshot was opened")
		}
		storetest.Must(t, sink.Cancel())
		if err := sink.Cancel(); err != nil {
			t.Errorf("a second Cancel: %v", err)
		}
		storetest.WantListed(t, snapshots, "1-1")
		if kind.ours {
			if err := sink.Close(); err == nil {
				t.Error("Close after Cancel looks like success: Raft would cut the log off")
			}
			if _, err := sink.Write([]byte("more")); err == nil {
				t.Error("a cancelled snapshot takes more")
			}
		}
		done()
	})
}

func TestCloseTwiceAndCancelAfterClose(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, done := kind.open(t, folder)
		sink, err := snapshots.Create(1, 2, 1, storetest.Configuration(), 1, storetest.NoTransport(t))
		storetest.Must(t, err)
		if _, err := sink.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			storetest.Must(t, sink.Close())
		}
		storetest.Must(t, sink.Cancel())
		storetest.WantListed(t, snapshots, "1-2")
		if _, content := storetest.ReadSnapshot(t, snapshots, sink.ID()); string(content) != "state" {
			t.Errorf("it holds %q", content)
		}
		if kind.ours {
			if _, err := sink.Write([]byte("more")); err == nil {
				t.Error("a finished snapshot takes more")
			}
		}
		done()
	})
}

func TestWhatCannotBeOpenedIsAnError(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, _ := kind.open(t, folder)
		if _, _, err := snapshots.Open("1-2-3"); err == nil {
			t.Error("a snapshot that never was was opened")
		}
		for _, version := range []raft.SnapshotVersion{0, 2} {
			if _, err := snapshots.Create(version, 1, 1, storetest.Configuration(), 1, storetest.NoTransport(t)); err == nil {
				t.Errorf("a snapshot of version %d was begun", version)
			}
		}
	})
}

// TestReaderOutlivesItsSnapshot: a slow transfer must not lose its snapshot to
// newer ones.
func TestReaderOutlivesItsSnapshot(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, done := kind.open(t, folder)
		content := storetest.Bytes(3, 3*chunkBytes)
		id := storetest.TakeSnapshot(t, snapshots, 1, 1, content)
		_, reader, err := snapshots.Open(id)
		storetest.Must(t, err)
		begin := make([]byte, 1000)
		if _, err := io.ReadFull(reader, begin); err != nil {
			t.Fatal(err)
		}
		for index := uint64(2); index < 6; index++ {
			storetest.TakeSnapshot(t, snapshots, index, 1, content)
		}
		storetest.WantListed(t, snapshots, "1-5", "1-4")
		rest, err := io.ReadAll(reader)
		if err != nil || !bytes.Equal(append(begin, rest...), content) {
			t.Errorf("%d bytes were read, error %v", len(begin)+len(rest), err)
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
		storetest.TakeSnapshot(t, snapshots, 6, 1, nil)
		storetest.WantListed(t, snapshots, "1-6", "1-5")
		if _, _, err := snapshots.Open(id); err == nil {
			t.Error("a snapshot that nobody reads is still there")
		}
		done()
	})
}

// TestSnapshotsBesideEachOther writes several at once, while others are read and
// listed: Raft takes one while it installs another.
func TestSnapshotsBesideEachOther(t *testing.T) {
	eachSnapshotKind(t, func(t *testing.T, kind snapshotKind, folder string) {
		snapshots, done := kind.open(t, folder)
		transport := storetest.NoTransport(t)
		write := func(index uint64) error {
			sink, err := snapshots.Create(1, index, 1, storetest.Configuration(), 1, transport)
			if err != nil {
				return err
			}
			if index%5 == 4 {
				_, err := sink.Write(storetest.Bytes(index, chunkBytes*int(index%20)))
				return errors.Join(err, sink.Cancel())
			}
			_, err = sink.Write(storetest.Bytes(index, chunkBytes*int(index%20)))
			return errors.Join(err, sink.Close())
		}
		read := func() error {
			metas, err := snapshots.List()
			if err != nil || len(metas) == 0 {
				return err
			}
			meta, reader, err := snapshots.Open(metas[0].ID)
			if err != nil {
				return nil // it was just removed
			}
			content, err := io.ReadAll(reader)
			if err == nil && !bytes.Equal(content, storetest.Bytes(meta.Index, chunkBytes*int(meta.Index%20))) {
				err = fmt.Errorf("snapshot %s has other bytes", meta.ID)
			}
			return errors.Join(err, reader.Close())
		}
		var all sync.WaitGroup
		for w := range uint64(3) {
			all.Go(func() {
				for i := range uint64(8) {
					if err := write(w + 3*i + 1); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); {
					if err := read(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		storetest.WantListed(t, snapshots, "1-23", "1-22")
		done()
	})
}

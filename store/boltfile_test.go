package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// walked returns "bucket/key=length checksum" of all that walkBolt visits in a file.
func walked(content []byte) ([]string, error) {
	var found []string
	err := walkBolt(bytes.NewReader(content), int64(len(content)), func(item boltItem) error {
		line := fmt.Sprintf("%q/%x", item.bucket, item.key)
		if item.value != nil {
			line += fmt.Sprintf("=%d %08x", len(item.value), crc32.ChecksumIEEE(item.value))
		}
		found = append(found, line)
		return nil
	})
	return found, err
}

// told returns the same of an open file, as bbolt tells it.
func told(tx *bbolt.Tx) []string {
	var found []string
	var bucket func(path []string, b *bbolt.Bucket) error
	bucket = func(path []string, b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if value != nil {
				found = append(found, fmt.Sprintf("%q/%x=%d %08x", path, key, len(value), crc32.ChecksumIEEE(value)))
				return nil
			}
			found = append(found, fmt.Sprintf("%q/%x", path, key))
			return bucket(append(slices.Clone(path), string(key)), b.Bucket(key))
		})
	}
	_ = tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		found = append(found, fmt.Sprintf("%q/%x", []string(nil), name))
		return bucket([]string{string(name)}, b)
	})
	return found
}

// randomBolt makes a file by random transactions, with buckets in buckets, values
// of many pages, and enough keys for trees three deep; it returns the file's
// content, and what bbolt tells of it.
func randomBolt(t testing.TB, seed uint64, changes int) (content []byte, want []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(quickFolder(t), "bolt")
	db, err := bbolt.Open(path, 0o600, Options{}.boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	change := func(b *bbolt.Bucket) error {
		key := binary.BigEndian.AppendUint64(nil, uint64(r.IntN(2000)))
		switch r.IntN(12) {
		case 0, 1, 2:
			return b.Delete(key)
		case 3:
			return b.Put(key, random(r.Uint64(), r.IntN(20_000)))
		default:
			return b.Put(key, random(r.Uint64(), r.IntN(400)))
		}
	}
	for range changes / 50 {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket %d", r.IntN(4)))
			for range r.IntN(3) {
				if err == nil {
					b, err = b.CreateBucketIfNotExists(fmt.Appendf(nil, "inner %d", r.IntN(2)))
				}
			}
			for range 50 {
				if err == nil {
					err = change(b)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.View(func(tx *bbolt.Tx) error { want = told(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return readTrimmed(t, filepath.Dir(path), "bolt"), want
}

func TestWalkFindsWhatBoltFinds(t *testing.T) {
	for seed := range uint64(6) {
		content, want := randomBolt(t, seed, 1000*int(seed%3)+50)
		got, err := walked(content)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %d keys were walked, and bbolt tells of %d", seed, len(got), len(want))
		}
	}
}

// TestWhatIsWalkedIsSafeForBolt spoils files; each that passes the walk is given
// to bbolt, which must neither panic (it would end this process) nor tell of
// anything else.
func TestWhatIsWalkedIsSafeForBolt(t *testing.T) {
	const seed = 7
	content, _ := randomBolt(t, seed, 1000)
	path := filepath.Join(quickFolder(t), "bolt")
	passed, changed := 0, 0
	cases := uint64(2 * damageCases)
	for i := range cases {
		r := rand.New(rand.NewPCG(seed, i))
		spoilt := damages[r.IntN(len(damages))].spoil(r, slices.Clone(content), content)
		want, err := walked(spoilt)
		if err != nil {
			continue
		}
		passed++
		if !bytes.Equal(spoilt, content) {
			changed++
		}
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, Options{}.boltOptions())
		if err != nil {
			t.Fatalf("seed %d, case %d: bbolt doesn't open it: %v", seed, i, err)
		}
		if err := db.View(func(tx *bbolt.Tx) error {
			if got := told(tx); !slices.Equal(got, want) {
				t.Errorf("seed %d, case %d: %d keys were walked, and bbolt tells of %d", seed, i, len(want), len(got))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if changed < int(cases/20) {
		t.Errorf("%d of %d passed, %d of them changed: too few to say anything", passed, cases, changed)
	}
}

// boltOf makes a file with a bucket "b" of many keys: a root page, a branch and
// leaves. It returns the content and where the branch is.
func boltOf(t *testing.T) (content []byte, branch int) {
	t.Helper()
	path := filepath.Join(quickFolder(t), "bolt")
	db, err := bbolt.Open(path, 0o600, Options{}.boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range 300 {
			err = errors.Join(err, b.Put(chunkKey(uint64(i)), make([]byte, 100)))
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	content = readTrimmed(t, filepath.Dir(path), "bolt")
	for at := 0; at < len(content); at += os.Getpagesize() {
		if binary.NativeEndian.Uint16(content[at+8:]) == boltBranch {
			return content, at
		}
	}
	t.Fatal("the file has no branch")
	return nil, 0
}

// TestEachCheckOfTheWalk breaks one thing at a time. That each of them is found
// by its own check matters, since bbolt relies on each.
func TestEachCheckOfTheWalk(t *testing.T) {
	order, page := binary.NativeEndian, os.Getpagesize()
	newest := func(c []byte) int { // offset of the newest meta page
		if order.Uint64(c[16+48:]) > order.Uint64(c[page+16+48:]) {
			return 0
		}
		return page
	}
	element := func(branch, i int) int { return branch + boltHeader + i*boltElement }
	leaf := func(c []byte, branch, i int) int { return int(order.Uint64(c[element(branch, i)+8:])) * page }
	cases := []struct {
		says  string
		spoil func(c []byte, branch int) []byte
	}{
		{"not a meta page", func(c []byte, _ int) []byte { c[16] ^= 1; return c }},
		{"checksum of the meta page", func(c []byte, _ int) []byte { c[newest(c)+16+30] ^= 1; return c }},
		{"checksum of the meta page", func(c []byte, _ int) []byte { c[page-newest(c)+16+30] ^= 1; return c }},
		{"its page size is", func(c []byte, _ int) []byte { c[16+8] ^= 1; return c }},
		{"its header is not that of a meta page", func(c []byte, _ int) []byte { c[page+8] ^= 2; return c }},
		{"belongs to the other meta page", func(c []byte, _ int) []byte { copy(c[16:80], c[page+16:page+80]); return c }},
		{"the file ends here", func(c []byte, _ int) []byte { return c[:len(c)-page] }},
		{"the file ends before or in it", func(c []byte, _ int) []byte { return c[:page] }},
		{"it says that it is page", func(c []byte, branch int) []byte { c[branch] ^= 1; return c }},
		{"its kind is", func(c []byte, branch int) []byte { c[branch+8] = boltMeta; return c }},
		{"it lies outside", func(c []byte, branch int) []byte { order.PutUint64(c[element(branch, 2)+8:], 1<<40); return c }},
		{"it lies outside", func(c []byte, branch int) []byte { c[leaf(c, branch, 3)+12] = 200; return c }},
		{"two things point to it", func(c []byte, branch int) []byte {
			copy(c[element(branch, 1)+8:], c[element(branch, 0)+8:element(branch, 0)+16])
			return c
		}},
		{"two things point to it", func(c []byte, branch int) []byte {
			order.PutUint64(c[element(branch, 0)+8:], uint64(branch/page)) // bbolt would go round for ever
			return c
		}},
		{"a branch without elements", func(c []byte, branch int) []byte { clear(c[branch+10 : branch+12]); return c }},
		{"no room for its", func(c []byte, branch int) []byte { order.PutUint16(c[branch+10:], 60_000); return c }},
		{"reaches out of it", func(c []byte, branch int) []byte { order.PutUint32(c[element(branch, 1):], 1<<30); return c }},
		{"reaches out of it", func(c []byte, branch int) []byte {
			order.PutUint32(c[element(leaf(c, branch, 1), 2)+12:], 1<<31)
			return c
		}},
		{"reaches out of it", func(c []byte, branch int) []byte { // key and value together wrap around
			order.PutUint32(c[element(leaf(c, branch, 1), 2)+12:], 1<<32-4)
			return c
		}},
		{"keys are not in order", func(c []byte, branch int) []byte {
			at := element(leaf(c, branch, 1), 3)
			c[at+int(order.Uint32(c[at+4:]))+7] = 0
			return c
		}},
		{"belongs to another page", func(c []byte, branch int) []byte {
			at := element(leaf(c, branch, 1), 0)
			clear(c[at+int(order.Uint32(c[at+4:])) : at+int(order.Uint32(c[at+4:]))+8])
			return c
		}},
		{"has the flags", func(c []byte, branch int) []byte { c[element(leaf(c, branch, 0), 0)] = 2; return c }},
		{"is too short", func(c []byte, branch int) []byte {
			at := element(leaf(c, branch, 0), 0)
			c[at] = 1
			order.PutUint32(c[at+12:], 3)
			return c
		}},
	}
	content, branch := boltOf(t)
	if _, err := walked(content); err != nil {
		t.Fatalf("unspoilt: %v", err)
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			_, err := walked(c.spoil(slices.Clone(content), branch))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want one that says %q", err, c.says)
			}
		})
	}
}

// stockFile names the file that a child process opens with raft-boltdb alone.
const stockFile = "SIGNALBOX_STORE_TEST_STOCK_FILE"

// TestStockBoltEndsTheProcess shows what boltfile.go is for. A child opens a
// damaged file with raft-boltdb alone, and tries to recover; it can't.
func TestStockBoltEndsTheProcess(t *testing.T) {
	if path := os.Getenv(stockFile); path != "" {
		defer func() { fmt.Println("recovered:", recover() != nil) }()
		bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: Options{}.boltOptions()})
		fmt.Println("opened:", bolt != nil, err)
		return
	}
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 1000, 1)
	closeStore(t, s)
	path := filepath.Join(folder, raftFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for at := 2 * page; at < len(content); at += page {
		if binary.NativeEndian.Uint16(content[at+8:]) == boltBranch {
			clear(content[at : at+page])
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestStockBoltEndsTheProcess$", "-test.v")
	child.Env = append(os.Environ(), stockFile+"="+path)
	output, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic:") || strings.Contains(string(output), "recovered:") {
		t.Errorf("the child went on, error %v: perhaps bbolt has changed, and boltfile.go can go\n%s", err, output)
	}
	_, err = Open(Options{Folder: folder, NodeID: "n1"})
	wantError(t, err, ErrDamaged, folder+"/"+raftFile, "page")
}

// TestStockBoltBelievesFlippedBits shows what the checksums are for.
func TestStockBoltBelievesFlippedBits(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 10, 1)
	closeStore(t, s)
	path := filepath.Join(folder, raftFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := bytes.Index(content, []byte("command 7 of")); at >= 0; at = bytes.Index(content, []byte("command 7 of")) {
		content[at+8] ^= 1
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: Options{}.boltOptions()})
	if err != nil {
		t.Fatal(err)
	}
	var got raft.Log
	if err := errors.Join(bolt.GetLog(7, &got), bolt.Close()); err != nil || !bytes.HasPrefix(got.Data, []byte("command 6 of")) {
		t.Errorf("raft-boltdb alone returned %q, error %v", got.Data, err)
	}
	_, err = Open(Options{Folder: folder, NodeID: "n1"})
	wantError(t, err, ErrDamaged, raftFile+" at index 7", "checksum")
}

package boltcheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/signalbox/signalbox/test/storetest"
)

// options are as in package store, as far as they matter to the format.
var options = &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}

// walked returns "bucket/key=length checksum" of every key that Walk visits in a file.
func walked(content []byte) ([]string, error) {
	var found []string
	err := Walk(bytes.NewReader(content), int64(len(content)), func(item Item) error {
		line := fmt.Sprintf("%q/%x", item.Bucket, item.Key)
		if item.Value != nil {
			line += fmt.Sprintf("=%d %08x", len(item.Value), crc32.ChecksumIEEE(item.Value))
		}
		found = append(found, line)
		return nil
	})
	return found, err
}

// listed returns the same of an open file, as bbolt reads it.
func listed(tx *bbolt.Tx) []string {
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
// content, and its keys as bbolt lists them.
func randomBolt(t testing.TB, seed uint64, changes int) (content []byte, want []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(storetest.Folder(t), "bolt")
	db, err := bbolt.Open(path, 0o600, options)
	storetest.Must(t, err)
	change := func(b *bbolt.Bucket) error {
		key := binary.BigEndian.AppendUint64(nil, uint64(r.IntN(2000)))
		switch r.IntN(12) {
		case 0, 1, 2:
			return b.Delete(key)
		case 3:
			return b.Put(key, storetest.Bytes(r.Uint64(), r.IntN(20_000)))
		default:
			return b.Put(key, storetest.Bytes(r.Uint64(), r.IntN(400)))
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
		storetest.Must(t, err)
	}
	storetest.Must(t, db.View(func(tx *bbolt.Tx) error { want = listed(tx); return nil }))
	storetest.Must(t, db.Close())
	return storetest.ReadTrimmed(t, filepath.Dir(path), "bolt"), want
}

func TestWalkFindsWhatBoltFinds(t *testing.T) {
	for seed := range uint64(6) {
		content, want := randomBolt(t, seed, 1000*int(seed%3)+50)
		got, err := walked(content)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %d keys were walked, and bbolt lists %d", seed, len(got), len(want))
		}
	}
}

// TestWhatIsWalkedIsSafeForBolt spoils files; each that passes the walk is given
// to bbolt, which must neither panic (it would end this process) nor list other
// keys.
func TestWhatIsWalkedIsSafeForBolt(t *testing.T) {
	const seed = 7
	content, _ := randomBolt(t, seed, 1000)
	path := filepath.Join(storetest.Folder(t), "bolt")
	passed, changed := 0, 0
	cases := uint64(damageCases)
	for i := range cases {
		r := rand.New(rand.NewPCG(seed, i))
		spoilt := storetest.Damages[r.IntN(len(storetest.Damages))].Spoil(r, slices.Clone(content), content)
		want, err := walked(spoilt)
		if err != nil {
			continue
		}
		passed++
		if !bytes.Equal(spoilt, content) {
			changed++
		}
		storetest.Must(t, os.WriteFile(path, spoilt, 0o600))
		db, err := bbolt.Open(path, 0o600, options)
		if err != nil {
			t.Fatalf("seed %d, case %d: bbolt doesn't open it: %v", seed, i, err)
		}
		if err := db.View(func(tx *bbolt.Tx) error {
			if got := listed(tx); !slices.Equal(got, want) {
				t.Errorf("seed %d, case %d: %d keys were walked, and bbolt lists %d", seed, i, len(want), len(got))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		storetest.Must(t, db.Close())
	}
	if changed < int(cases/20) {
		t.Errorf("%d of %d passed, %d of them changed: too few to say anything", passed, cases, changed)
	}
}

// boltOf makes a file with a bucket "b" of many keys: a root page, a branch and
// leaves. It returns the content and where the branch is.
func boltOf(t *testing.T) (content []byte, branch int) {
	t.Helper()
	path := filepath.Join(storetest.Folder(t), "bolt")
	db, err := bbolt.Open(path, 0o600, options)
	storetest.Must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range 300 {
			err = errors.Join(err, b.Put(binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, 100)))
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	content = storetest.ReadTrimmed(t, filepath.Dir(path), "bolt")
	for at := 0; at < len(content); at += os.Getpagesize() {
		if binary.NativeEndian.Uint16(content[at+8:]) == kindBranch {
			return content, at
		}
	}
	t.Fatal("the file has no branch")
	return nil, 0
}

// TestEachCheckOfTheWalk breaks one property at a time. Each must be found by its own
// check, since bbolt relies on all of them.
func TestEachCheckOfTheWalk(t *testing.T) {
	order, page := binary.NativeEndian, os.Getpagesize()
	newest := func(c []byte) int { // offset of the newest meta page
		if order.Uint64(c[16+48:]) > order.Uint64(c[page+16+48:]) {
			return 0
		}
		return page
	}
	element := func(branch, i int) int { return branch + headerBytes + i*elementBytes }
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
		{"its kind is", func(c []byte, branch int) []byte { c[branch+8] = kindMeta; return c }},
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

package snapshots

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/boltcheck"
	"github.com/signalbox/signalbox/store/damage"
)

// Contents is the checked content of a file of snapshots.
type Contents struct {
	readable []snapshotRecord // newest first
	bad      []Bad            // highest index first
}

// Bad is a snapshot whose record or chunks are damaged. The zero value means no snapshot.
type Bad struct {
	ID    string
	Index uint64
	Err   error
}

// Newest returns the highest index of the readable snapshots, or 0.
func (c Contents) Newest() (index uint64) {
	for _, record := range c.readable {
		index = max(index, record.meta.Index)
	}
	return index
}

// NewestBad returns the damaged snapshot with the highest index, or a zero Bad.
func (c Contents) NewestBad() Bad {
	if len(c.bad) == 0 {
		return Bad{}
	}
	return c.bad[0]
}

// Bad returns the damaged snapshots, by falling index.
func (c Contents) Bad() []Bad { return c.bad }

// List returns the readable snapshots, the newest first.
func (c Contents) List() (listed []*raft.SnapshotMeta) {
	for _, record := range c.readable {
		listed = append(listed, cloneMeta(record.meta))
	}
	return listed
}

// Copy writes the content of a snapshot in a closed file to a writer. Read must have found the snapshot readable.
func Copy(folder, id string, to io.Writer) error {
	next := uint64(0)
	return damage.Walk(folder, FileName, func(item boltcheck.Item) error {
		if len(item.Bucket) != 2 || item.Bucket[0] != string(dataBucket) || item.Bucket[1] != id {
			return nil
		}
		content, err := openChunk(id, next, item.Value)
		if err != nil {
			return &damage.Error{Folder: folder, File: FileName, Detail: fmt.Sprintf("snapshot %s, chunk %d", id, next), Err: err}
		}
		next++
		_, err = to.Write(content)
		return err
	})
}

type fileReader struct {
	folder  string
	records map[string]snapshotRecord
	bad     map[string]error
	data    map[string]*chunkCount
	buckets int // how many of metaBucket and dataBucket were found
}

// chunkCount counts the chunks of a snapshot that were found.
type chunkCount struct {
	chunks uint64
	size   int64
	err    error
}

// Read checks the whole file of a folder before bbolt opens it. It fails if the structure of the file is damaged. If a
// snapshot is damaged, only that snapshot becomes unreadable.
func Read(folder string) (Contents, error) {
	r := &fileReader{folder: folder, records: map[string]snapshotRecord{}, bad: map[string]error{}, data: map[string]*chunkCount{}}
	if err := damage.Walk(folder, FileName, r.visit); err != nil {
		return Contents{}, err
	}
	if r.buckets != 2 {
		return Contents{}, &damage.Error{Folder: folder, File: FileName, Detail: "a part of it is missing"}
	}
	var facts Contents
	for id, record := range r.records {
		if err := r.data[id].matches(record); err != nil {
			r.bad[id] = err
			continue
		}
		facts.readable = append(facts.readable, record)
	}
	for id, err := range r.bad {
		bad := Bad{ID: id, Err: err}
		var term, stamp uint64
		if _, err := fmt.Sscanf(id, "%d-%d-%d", &term, &bad.Index, &stamp); err != nil {
			return Contents{}, &damage.Error{Folder: folder, File: FileName, Detail: fmt.Sprintf("it holds a snapshot of the name %q", id)}
		}
		facts.bad = append(facts.bad, bad)
	}
	slices.SortFunc(facts.readable, newerFirst)
	slices.SortFunc(facts.bad, func(a, b Bad) int { return cmp.Compare(b.Index, a.Index) })
	return facts, nil
}

func (r *fileReader) visit(item boltcheck.Item) error {
	isBucket := item.Value == nil
	switch {
	case len(item.Bucket) == 0 && isBucket && slices.Contains([]string{string(metaBucket), string(dataBucket)}, string(item.Key)):
		r.buckets++
		return nil
	case len(item.Bucket) == 1 && item.Bucket[0] == string(dataBucket) && isBucket:
		r.data[string(item.Key)] = &chunkCount{}
		return nil
	case len(item.Bucket) == 1 && item.Bucket[0] == string(metaBucket) && !isBucket:
		id := string(item.Key)
		record, err := decodeSnapshotRecord(id, item.Value)
		if err != nil {
			r.bad[id] = err
			return nil
		}
		r.records[id] = record
		return nil
	case len(item.Bucket) == 2 && item.Bucket[0] == string(dataBucket) && !isBucket:
		r.data[item.Bucket[1]].add(item)
		return nil
	default:
		return &damage.Error{Folder: r.folder, File: FileName, Detail: fmt.Sprintf("it holds a key %q that doesn't belong there", item.Key)}
	}
}

// add counts a chunk, which must have the next number.
func (c *chunkCount) add(item boltcheck.Item) {
	content, err := openChunk(item.Bucket[1], c.chunks, item.Value)
	if string(item.Key) != string(chunkKey(c.chunks)) {
		err = errChunk
	}
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("chunk %d: %w", c.chunks, err)
	}
	c.chunks++
	c.size += int64(len(content))
}

// matches returns an error if the chunks differ from the record. c is nil for an empty snapshot, which has no bucket.
func (c *chunkCount) matches(record snapshotRecord) error {
	if c == nil {
		c = &chunkCount{}
	}
	if c.err != nil {
		return c.err
	}
	if c.chunks != record.chunks || c.size != record.meta.Size {
		return fmt.Errorf("it has %d chunks with %d bytes instead of %d with %d", c.chunks, c.size, record.chunks, record.meta.Size)
	}
	return nil
}

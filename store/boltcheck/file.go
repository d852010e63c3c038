package boltcheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// These constants are from bbolt's internal/common.
const (
	magic        = 0xED0CDAED
	version      = 2
	noFreelist   = math.MaxUint64
	headerBytes  = 16 // bytes of a page's header
	elementBytes = 16 // bytes of an element in a leaf or branch
	metaBytes    = 64 // bytes of a meta page after its header
	kindBranch   = 0x01
	kindLeaf     = 0x02
	kindMeta     = 0x04
	maxDepth     = 64 // of a tree; four levels would hold any file
)

// PageError reports a damaged page of a file.
type PageError struct {
	page   uint64
	detail string
}

func (e *PageError) Error() string { return fmt.Sprintf("page %d: %s", e.page, e.detail) }

func badPage(page uint64, format string, arguments ...any) error {
	return &PageError{page: page, detail: fmt.Sprintf(format, arguments...)}
}

// Item is a key of a file, with its value.
type Item struct {
	Bucket []string // names of the buckets around it, the outermost first
	Key    []byte   // valid until visit returns
	Value  []byte   // valid until visit returns; nil for a bucket
}

type walk struct {
	reader   io.ReaderAt
	size     int64
	visit    func(Item) error
	order    binary.ByteOrder
	pageSize uint64
	pages    uint64   // number of pages in use; later pages were never written
	seen     []uint64 // one bit for each page to which another page points
	spare    [][]byte // buffers that can be used again
}

// Walk checks a file of the given size and visits all its keys in order, a bucket before its keys. It returns visit's
// error, or a PageError if a page is damaged or unreadable. It needs memory for one bit per page, and for the pages on
// the way to one key.
func Walk(reader io.ReaderAt, size int64, visit func(Item) error) error {
	f := &walk{reader: reader, size: size, visit: visit, order: binary.NativeEndian}
	root, err := f.readMetas()
	if err != nil {
		return err
	}
	f.seen = make([]uint64, f.pages/64+1)
	return f.tree(nil, root, keyRange{}, 0)
}

// metaPage has the fields of a meta page that Walk needs.
type metaPage struct {
	root, pages, transaction uint64
}

// readMetas reads both meta pages, sets pageSize and pages, and returns the page of the root bucket. It fails if either
// page is unreadable. With an unreadable newer page, bbolt would open the file by the older page, and silently lose the
// last transaction. A crash can't leave an unreadable page, since the content of a meta page lies in one sector.
func (f *walk) readMetas() (root uint64, err error) {
	first := make([]byte, headerBytes+metaBytes)
	if _, err := f.reader.ReadAt(first, 0); err != nil {
		return 0, readError(0, err)
	}
	f.pageSize = uint64(f.order.Uint32(first[headerBytes+8:]))
	if f.pageSize < 1024 || f.pageSize > 1<<16 || f.pageSize&(f.pageSize-1) != 0 {
		return 0, badPage(0, "its page size is %d", f.pageSize)
	}
	var newest metaPage
	for page := range uint64(2) {
		content := make([]byte, headerBytes+metaBytes)
		if _, err := f.reader.ReadAt(content, int64(page*f.pageSize)); err != nil {
			return 0, readError(page, err)
		}
		meta, err := f.parseMeta(page, content)
		if err != nil {
			return 0, err
		}
		if page == 0 || meta.transaction > newest.transaction {
			newest = meta
		}
	}
	f.pages = newest.pages
	if in := uint64(f.size) / f.pageSize; f.pages > in {
		return 0, badPage(in, "the file ends here, and should have %d pages", f.pages)
	}
	return newest.root, nil
}

func (f *walk) parseMeta(page uint64, content []byte) (metaPage, error) {
	body := content[headerBytes:]
	sum := fnv.New64a()
	_, _ = sum.Write(body[:56])
	meta := metaPage{root: f.order.Uint64(body[16:]), pages: f.order.Uint64(body[40:]), transaction: f.order.Uint64(body[48:])}
	switch {
	case f.order.Uint32(body) != magic:
		return meta, badPage(page, "not a meta page")
	case f.order.Uint64(body[56:]) != sum.Sum64():
		return meta, badPage(page, "the checksum of the meta page is wrong")
	case f.order.Uint32(body[4:]) != version:
		return meta, badPage(page, "it is of version %d", f.order.Uint32(body[4:]))
	case uint64(f.order.Uint32(body[8:])) != f.pageSize:
		return meta, badPage(page, "its page size is %d, and that of page 0 is %d", f.order.Uint32(body[8:]), f.pageSize)
	case f.order.Uint64(content) != page || f.order.Uint16(content[8:]) != kindMeta:
		return meta, badPage(page, "its header is not that of a meta page")
	case meta.transaction%2 != page:
		return meta, badPage(page, "it holds transaction %d, which belongs to the other meta page", meta.transaction)
	case f.order.Uint64(body[32:]) != noFreelist && meta.transaction > 1: // transactions 0 and 1 made the new file
		return meta, badPage(page, "it names a list of free pages, which this program never writes")
	}
	return meta, nil
}

// readError turns a failed read of a page into damage: the file is too short, or the disk can't read a sector.
func readError(page uint64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badPage(page, "the file ends before or in it")
	}
	return badPage(page, "%v", err)
}

// keyRange bounds the keys of a page: low <= key < high. nil means no bound.
type keyRange struct{ low, high []byte }

// take marks a page and its overflow pages as used. It fails if a page is marked already.
func (f *walk) take(page, overflow uint64) error {
	if page < 2 || page >= f.pages || overflow >= f.pages-page {
		return badPage(page, "it lies outside the file's %d pages", f.pages)
	}
	for p := page; p <= page+overflow; p++ {
		if f.seen[p/64]&(1<<(p%64)) != 0 {
			return badPage(p, "two things point to it")
		}
		f.seen[p/64] |= 1 << (p % 64)
	}
	return nil
}

// tree walks through the tree with the given root page.
func (f *walk) tree(bucket []string, page uint64, keys keyRange, depth int) error {
	if depth > maxDepth {
		return badPage(page, "the tree is deeper than %d", maxDepth)
	}
	if page < 2 || page >= f.pages {
		return badPage(page, "it lies outside the file's %d pages", f.pages)
	}
	var header [headerBytes]byte
	if _, err := f.reader.ReadAt(header[:], int64(page*f.pageSize)); err != nil {
		return readError(page, err)
	}
	if found := f.order.Uint64(header[:]); found != page {
		return badPage(page, "it says that it is page %d", found)
	}
	overflow := uint64(f.order.Uint32(header[12:]))
	if err := f.take(page, overflow); err != nil {
		return err
	}
	content := f.buffer(int((overflow + 1) * f.pageSize))
	defer func() { f.spare = append(f.spare, content) }()
	if _, err := f.reader.ReadAt(content, int64(page*f.pageSize)); err != nil {
		return readError(page, err)
	}
	p := treePage{walk: f, number: page, content: content, bucket: bucket, keys: keys, depth: depth}
	switch flags := f.order.Uint16(header[8:]); flags {
	case kindBranch:
		return p.branch()
	case kindLeaf:
		return p.leaf()
	default:
		return badPage(page, "its kind is %#x", flags)
	}
}

// buffer returns a buffer of the given length, if possible a used one.
func (f *walk) buffer(length int) []byte {
	for i := len(f.spare) - 1; i >= 0; i-- {
		if cap(f.spare[i]) >= length {
			found := f.spare[i][:length]
			f.spare = append(f.spare[:i], f.spare[i+1:]...)
			return found
		}
	}
	return make([]byte, length)
}

// check returns an error unless key is above the key before it on the page, and within the range that the parent page
// gives.
func (k keyRange) check(page uint64, key, before []byte, first bool) error {
	switch {
	case !first && bytes.Compare(before, key) >= 0:
		return badPage(page, "its keys are not in order")
	case k.low != nil && bytes.Compare(key, k.low) < 0, k.high != nil && bytes.Compare(key, k.high) >= 0:
		return badPage(page, "it holds a key that belongs to another page")
	}
	return nil
}

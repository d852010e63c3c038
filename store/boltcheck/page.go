package boltcheck

import "slices"

// treePage is a branch or a leaf, with its overflow pages. A branch has elements that point to pages; a leaf has
// elements with keys and values.
type treePage struct {
	walk    *walk
	number  uint64 // of the page; if the page is inside a value, of the page with this value
	content []byte
	bucket  []string
	keys    keyRange
	depth   int
	inline  bool
}

func (p treePage) count() (int, error) {
	count := int(p.walk.order.Uint16(p.content[10:]))
	if headerBytes+count*elementBytes > len(p.content) {
		return 0, badPage(p.number, "it has no room for its %d elements", count)
	}
	return count, nil
}

// at returns length bytes of an element's key or value, which begin offset bytes after the start of element i.
func (p treePage) at(i int, offset, length uint32) ([]byte, error) {
	count := uint64(p.walk.order.Uint16(p.content[10:]))
	start := headerBytes + uint64(i)*elementBytes + uint64(offset)
	end := start + uint64(length)
	if start < headerBytes+count*elementBytes || end > uint64(len(p.content)) {
		return nil, badPage(p.number, "element %d reaches out of it", i)
	}
	return p.content[start:end:end], nil
}

// element returns element i of the table.
func (p treePage) element(i int) []byte {
	return p.content[headerBytes+i*elementBytes : headerBytes+(i+1)*elementBytes]
}

// branch walks through the pages below a branch.
func (p treePage) branch() error {
	count, err := p.count()
	if err != nil {
		return err
	}
	if count == 0 {
		return badPage(p.number, "it is a branch without elements")
	}
	keys := make([][]byte, count)
	for i := range keys {
		element := p.element(i)
		if keys[i], err = p.at(i, p.walk.order.Uint32(element), p.walk.order.Uint32(element[4:])); err != nil {
			return err
		}
		before := keys[max(i-1, 0)]
		if err := p.keys.check(p.number, keys[i], before, i == 0); err != nil {
			return err
		}
	}
	for i, key := range keys {
		below := keyRange{low: key, high: p.keys.high}
		if i+1 < count {
			below.high = keys[i+1]
		}
		if err := p.walk.tree(p.bucket, p.walk.order.Uint64(p.element(i)[8:]), below, p.depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf visits the keys of a leaf, and walks through the buckets in it.
func (p treePage) leaf() error {
	count, err := p.count()
	if err != nil {
		return err
	}
	var before []byte
	for i := range count {
		element := p.element(i)
		flags, offset := p.walk.order.Uint32(element), p.walk.order.Uint32(element[4:])
		keyLength, valueLength := p.walk.order.Uint32(element[8:]), p.walk.order.Uint32(element[12:])
		key, err := p.at(i, offset, keyLength)
		if err != nil {
			return err
		}
		if err := p.keys.check(p.number, key, before, i == 0); err != nil {
			return err
		}
		before = key
		both, err := p.at(i, offset, keyLength+valueLength)
		if err != nil || keyLength+valueLength < keyLength {
			return badPage(p.number, "the value of element %d reaches out of it", i)
		}
		switch {
		case flags == 0:
			err = p.walk.visit(Item{Bucket: p.bucket, Key: key, Value: both[keyLength:]})
		case flags == 1 && !p.inline:
			err = p.subBucket(string(key), both[keyLength:])
		default:
			err = badPage(p.number, "element %d has the flags %#x", i, flags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subBucket walks through a bucket inside a leaf. Its value is the number of its root page, and a counter. If that
// number is 0, the bucket has only one leaf, which follows in the value.
func (p treePage) subBucket(name string, value []byte) error {
	if len(value) < 16 {
		return badPage(p.number, "the value of bucket %q is too short", name)
	}
	if err := p.walk.visit(Item{Bucket: p.bucket, Key: []byte(name)}); err != nil {
		return err
	}
	bucket := append(slices.Clone(p.bucket), name)
	if root := p.walk.order.Uint64(value); root != 0 {
		return p.walk.tree(bucket, root, keyRange{}, p.depth+1)
	}
	content := value[16:]
	if len(content) < headerBytes || p.walk.order.Uint16(content[8:]) != kindLeaf {
		return badPage(p.number, "bucket %q, which is stored in it, has no leaf", name)
	}
	return treePage{walk: p.walk, number: p.number, content: content, bucket: bucket, depth: p.depth + 1, inline: true}.leaf()
}

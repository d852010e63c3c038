package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Restore reads a snapshot into a new machine. It answers an error for bytes
// that are no snapshot, of another version, damaged, or that break an
// invariant of the state; nothing is changed then.
func Restore(r io.Reader) (*Machine, error) {
	b := &builder{m: New(), in: &snapshotReader{r: bufio.NewReaderSize(r, 256<<10)}, epochs: map[uint64]ref{}, orders: map[uint64]ref{}, pending: map[uint64][]ref{}}
	if err := b.read(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	b.findUnserved()
	if err := b.m.check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return b.m, nil
}

// builder fills a new machine from a snapshot's records.
type builder struct {
	m       *Machine
	in      *snapshotReader
	epochs  map[uint64]ref   // semaphores by epoch, as the records name them
	orders  map[uint64]ref   // wait lists' entries by order, likewise
	pending map[uint64][]ref // keys by the place that they wait for
	buf     []byte
	last    uint64 // the key of the section's last record: they rise
}

func (b *builder) read() error {
	header := make([]byte, len(snapshotMagic)+1)
	if err := b.in.full(header); err != nil {
		return err
	}
	if string(header[:len(snapshotMagic)]) != snapshotMagic {
		return errors.New("not a snapshot of this program")
	}
	if err := b.in.header(header[len(snapshotMagic)]); err != nil {
		return err
	}
	for {
		tag, err := b.in.ReadByte()
		if err != nil {
			return err
		}
		records, err := binary.ReadUvarint(b.in)
		if err != nil {
			return err
		}
		if tag == sectionEnd {
			return b.trailer()
		}
		b.last = 0
		for range records {
			if err := b.record(tag); err != nil {
				return err
			}
		}
	}
}

func (b *builder) trailer() error {
	want := b.in.crc
	var sum [4]byte
	if err := b.in.full(sum[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(sum[:]) != want {
		return errors.New("checksum differs: damaged")
	}
	if _, err := b.in.r.ReadByte(); err != io.EOF {
		return errors.New("bytes after its end")
	}
	return nil
}

// record reads one record of a section and files it. Records come in the
// order in which the live machine would have filed them.
func (b *builder) record(tag byte) error {
	d, err := b.in.record(&b.buf)
	if err != nil {
		return err
	}
	switch tag {
	case sectionState:
		b.m.state = d.state()
	case sectionSemaphores:
		b.addSemaphore(d)
	case sectionSessions:
		b.addSession(d)
	case sectionLeases:
		b.addLease(d)
	case sectionKeys:
		b.addKey(d)
	case sectionEntries:
		b.addEntry(d)
	case sectionNotices:
		b.addNotice(d)
	case sectionRequests:
		b.addRequest(d)
	case sectionEnded:
		b.addEnded(d)
	case sectionMarks:
		b.addMark(d)
	case sectionRevoked:
		b.addRevoked(d)
	default:
		return fmt.Errorf("unknown section %d: written by a newer version", tag)
	}
	return d.done()
}

// findUnserved finds the heads that the last entry left over.
func (b *builder) findUnserved() {
	if !b.m.bounded() {
		return
	}
	b.m.names.Scan(func(_ string, r ref) bool {
		if line := b.m.semaphores.at(r).line; line != nil {
			if place, head, _ := line.Min(); b.m.servable(b.m.requests.at(head)) >= 0 {
				b.m.unserved.Set(place, head)
			}
		}
		return true
	})
}

// rises refuses a record that is out of the canonical order, or there twice.
func (b *builder) rises(d *decoder, key uint64) {
	if key <= b.last {
		d.fail()
	}
	b.last = key
}

func (b *builder) addSemaphore(d *decoder) {
	s := d.semaphore()
	b.rises(d, s.epoch)
	if _, twice := b.m.byName[s.name]; twice && !s.deleted || d.err != nil {
		d.fail()
		return
	}
	r := b.m.semaphores.add(s)
	b.epochs[s.epoch] = r
	if s.deleted || s.shrunk {
		b.m.unswept.Set(s.epoch, r)
	}
	if s.deleted {
		return
	}
	b.m.byName[s.name] = r
	b.m.names.Set(s.name, r)
}

func (b *builder) addSession(d *decoder) {
	s := d.session()
	if b.rises(d, s.id); d.err != nil {
		d.fail()
		return
	}
	r := b.m.sessions.add(s)
	b.m.bySession[s.id] = r
	b.m.ids.Set(s.id, r)
	b.m.deadlines.set(r, s.id, s.deadlineMS)
}

func (b *builder) addLease(d *decoder) {
	l := b.lease(d)
	b.rises(d, l.token)
	if _, twice := b.m.byLease[leaseKey{l.session, l.semaphore}]; twice || d.err != nil {
		d.fail()
		return
	}
	b.m.linkLease(b.m.leases.add(l))
}

func (b *builder) addKey(d *decoder) {
	k := d.key()
	b.rises(d, k.order)
	if _, twice := b.m.byKey[k.keyName]; twice || d.err != nil {
		d.fail()
		return
	}
	if k.place == 0 {
		if _, err := DecodeResult([]byte(k.result)); err != nil {
			d.fail()
			return
		}
	}
	r := b.m.keys.add(k)
	b.followOneShot(d, r, &k)
	if k.place != 0 {
		b.pending[k.place] = append(b.pending[k.place], r)
	}
	b.m.byKey[k.keyName] = r
	b.m.countKey(&k, 1)
	b.m.queueKey(r)
}

// followOneShot ties a key with an outcome to the session that it ends with.
func (b *builder) followOneShot(d *decoder, r ref, k *key) {
	if k.place != 0 || k.session == 0 {
		return
	}
	owner, ok := b.m.bySession[k.session]
	if !ok || b.m.sessions.at(owner).key != 0 {
		d.fail()
		return
	}
	b.m.sessions.mut(owner).key = r
}

func (b *builder) addMark(d *decoder) {
	v := d.mark()
	last := v.atMS
	if b.m.marks.length > 0 {
		at := b.m.marks.head + b.m.marks.length - 1
		last = b.m.marks.pages[at/markPage][at%markPage].atMS
	}
	if _, twice := b.m.marked[v.hash]; twice || v.atMS < last {
		d.fail()
		return
	}
	b.m.marks.push(v)
	b.m.marked[v.hash] = struct{}{}
}

func (b *builder) addEntry(d *decoder) {
	w := b.entry(d)
	b.rises(d, w.order)
	if _, twice := b.m.byEntry[leaseKey{w.session, w.semaphore}]; twice || d.err != nil {
		d.fail()
		return
	}
	r := b.m.entries.add(w)
	b.orders[w.order] = r
	b.m.linkEntry(r)
}

func (b *builder) addNotice(d *decoder) {
	n := b.notice(d)
	if b.rises(d, n.place); d.err == nil {
		b.m.linkNotice(b.m.notices.add(n))
	}
}

func (b *builder) addRequest(d *decoder) {
	r := b.request(d)
	b.rises(d, r.place)
	for i, want := range r.members {
		if countOf(r.members[:i], want.semaphore) != 0 {
			d.fail()
		}
	}
	if d.err == nil && r.entry != 0 && (b.m.entries.at(r.entry).waiting != 0 || b.m.entries.at(r.entry).session != r.session) {
		d.fail()
	}
	if d.err != nil || len(r.members) == 0 || b.waitsAlready(&r) {
		d.fail()
		return
	}
	b.m.linkRequest(b.m.requests.add(r))
}

// waitsAlready reports whether another request of the session waits for a lease of
// the same semaphore.
func (b *builder) waitsAlready(r *request) bool {
	for _, want := range r.members {
		if !r.unowned && b.m.waitsFor(r.session, want.semaphore) != 0 {
			return true
		}
	}
	return false
}

func (b *builder) addEnded(d *decoder) {
	e := d.ended()
	b.rises(d, e.order)
	if _, twice := b.m.byEnded[e.id]; twice || d.err != nil {
		d.fail()
		return
	}
	r := b.m.ended.add(e)
	b.m.byEnded[e.id] = r
	b.m.endedFIFO.push(e.order, r)
}

// session reads a session id and answers its record.
func (b *builder) session(d *decoder) ref {
	r, ok := b.m.bySession[d.uint()]
	if !ok {
		d.fail()
	}
	return r
}

// semaphore reads an epoch and answers its semaphore's record.
func (b *builder) semaphore(d *decoder) ref {
	r, ok := b.epochs[d.uint()]
	if !ok {
		d.fail()
	}
	return r
}

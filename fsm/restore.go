package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/signalbox/signalbox/internal/wire"
)

// Restore reads a snapshot into a new machine. It returns an error if the bytes are not a snapshot, are damaged or have
// another format version, or if the state breaks an invariant.
func Restore(r io.Reader) (*Machine, error) { return restore(bufio.NewReaderSize(r, 256<<10)) }

func restore(r *bufio.Reader) (*Machine, error) {
	b := &builder{m: New(), reader: &snapshotReader{r: r}, semaphoreByEpoch: map[uint64]ref{}, entryByOrder: map[uint64]ref{}, keysByPlace: map[uint64][]ref{}}
	err := b.read()
	if err == nil {
		b.enterPoolLines()
		b.findUnserved()
		err = b.m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return b.m, nil
}

// builder fills a new machine with the records of a snapshot.
type builder struct {
	m                *Machine
	reader           *snapshotReader
	semaphoreByEpoch map[uint64]ref
	entryByOrder     map[uint64]ref   // entries of wait lists
	keysByPlace      map[uint64][]ref // the keys that wait for a request, by the place of the request
	buf              []byte
	decoder          decoder // of the record in buf
	last             uint64  // the key of the section's last record

	lastGroup string // of the section's last group
}

// ReadStateHeader reads the StateHeader from the beginning of a snapshot. Because it buffers, it may read more of r
// than it needs.
func ReadStateHeader(r io.Reader) (StateHeader, error) {
	b := &builder{m: New(), reader: &snapshotReader{r: bufio.NewReader(r)}}
	err := b.begin()
	var head [2]byte
	if err == nil {
		err = b.reader.full(head[:])
	}
	if err == nil && head != [2]byte{sectionState, 1} {
		err = errors.New("it does not begin with its counters")
	}
	if err == nil {
		err = b.record(sectionState)
	}
	if err != nil {
		return StateHeader{}, fmt.Errorf("snapshot: %w", err)
	}
	return b.m.StateHeader(), nil
}

// begin reads the part before the sections.
func (b *builder) begin() error {
	header := make([]byte, len(snapshotMagic)+1)
	if err := b.reader.full(header); err != nil {
		return err
	}
	if string(header[:len(snapshotMagic)]) != snapshotMagic {
		return errors.New("not a snapshot of this program")
	}
	return b.reader.header(header[len(snapshotMagic)])
}

func (b *builder) read() error {
	if err := b.begin(); err != nil {
		return err
	}
	for {
		tag, err := b.reader.ReadByte()
		if err != nil {
			return err
		}
		records, err := binary.ReadUvarint(b.reader)
		if err != nil {
			return err
		}
		if tag == sectionEnd {
			return b.trailer()
		}
		b.last = 0
		for i := range records {
			if i == roomAfter {
				b.makeRoom(tag, int(min(records, roomFor)))
			}
			if err := b.record(tag); err != nil {
				return err
			}
		}
	}
}

const (
	// roomAfter is the number of records of a section after which we allocate space for the rest. Until then the number
	// in the section's head may be wrong.
	roomAfter = 1 << 14
	// roomFor bounds the records for which we allocate space in advance.
	roomFor = 1 << 20
)

// makeRoom allocates the largest index for all of its records, because growing it would slow down the reading of a
// large state.
func (b *builder) makeRoom(tag byte, records int) {
	if tag == sectionKeys {
		byKey := make(map[keyName]ref, records)
		maps.Copy(byKey, b.m.byKey)
		b.m.byKey = byKey
	}
}

func (b *builder) trailer() error {
	want := b.reader.crc
	var sum [4]byte
	if err := b.reader.full(sum[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(sum[:]) != want {
		return errors.New("checksum differs: damaged")
	}
	if _, err := b.reader.r.ReadByte(); err != io.EOF {
		return errors.New("bytes after its end")
	}
	return nil
}

// record reads and files one record of a section. Records come in the order in which the live machine filed them.
func (b *builder) record(tag byte) error {
	if err := b.reader.record(&b.buf); err != nil {
		return err
	}
	b.decoder = decoder{Decoder: wire.Decoder{Rest: b.buf}, feature: b.reader.feature}
	d := &b.decoder
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
	case sectionItems:
		b.addItem(d)
	case sectionFolders:
		b.addFolder(d)
	case sectionSettings:
		b.addSettings(d)
	case sectionLanes:
		b.addLane(d)
	case sectionReturns:
		b.addReturn(d)
	default:
		return fmt.Errorf("unknown section %d: written by a newer version", tag)
	}
	return d.Done()
}

// findUnserved finds the heads of lines that the last entry of the log left ungranted.
func (b *builder) findUnserved() {
	for r := range b.m.semaphores.all() {
		b.m.addCandidate(target(r))
	}
	for r, l := range b.m.lanes.all() {
		if b.m.semaphores.at(l.semaphore).family() {
			b.m.addCandidate(targetOf(l.semaphore, r))
		}
	}
}

// enterPoolLines puts each request that is ready in its other lines into the line of its pool.
func (b *builder) enterPoolLines() {
	for r, s := range b.m.semaphores.all() {
		if s.line != nil {
			b.m.refreshFront(target(r), s.line)
		}
	}
	for r, l := range b.m.lanes.all() {
		if l.line != nil && !b.m.semaphores.at(l.semaphore).pool() {
			b.m.refreshFront(targetOf(l.semaphore, r), l.line)
		}
	}
	b.m.touched, b.m.noticeChecks = b.m.touched[:0], b.m.noticeChecks[:0]
}

func (b *builder) addSettings(d *decoder) {
	epoch := d.Uint()
	r, known := b.semaphoreByEpoch[epoch]
	if !known || !b.valid(d, epoch, b.m.semaphores.at(r).hasSettings()) {
		d.Fail()
		return
	}
	d.settingsOf(b.m.semaphores.mut(r))
	b.m.fileUnswept(r)
}

func (b *builder) addLane(d *decoder) {
	l := b.readLaneRecord(d)
	if d.Err != nil {
		return
	}
	epoch := b.m.semaphores.at(l.semaphore).epoch
	if epoch < b.last || epoch == b.last && l.group <= b.lastGroup || l.limit < NoLimit {
		d.Fail()
		return
	}
	b.last, b.lastGroup = epoch, l.group
	if l.hasOwnLimit {
		b.m.countOwnLimit(l.owner, 1)
	}
	b.m.fileLane(b.m.lanes.add(l))
}

func (b *builder) addReturn(d *decoder) {
	t := b.timedReturn(d)
	_, twice := b.m.byReturn.spends[t.spendKey()]
	if b.valid(d, t.order, t.spent && twice || t.count < 0 || t.spent && t.lost != nil || t.semaphore != 0 && !b.m.markSlots(t.semaphore, t.slots)) {
		b.m.linkReturn(b.m.returns.add(t))
	}
}

// lane reads the name of an existing group.
func (b *builder) lane(d *decoder, semaphore ref) ref { return b.laneOf(d, semaphore, d.Text()) }

func (b *builder) laneOf(d *decoder, semaphore ref, group string) ref {
	if d.Err != nil || semaphore == 0 {
		d.Fail()
		return 0
	}
	r := b.m.semaphores.at(semaphore).lane(group)
	if r == 0 {
		d.Fail()
	}
	return r
}

// valid reports whether a record was read without an error, follows the last record in canonical order, and does not
// conflict with an earlier record.
func (b *builder) valid(d *decoder, key uint64, conflict bool) bool {
	if key <= b.last || conflict {
		d.Fail()
	}
	b.last = key
	return d.Err == nil
}

func (b *builder) addSemaphore(d *decoder) {
	s := d.semaphore()
	if _, twice := b.m.byName[s.name]; !b.valid(d, s.epoch, twice && !s.deleted) {
		return
	}
	r := b.m.semaphores.add(s)
	b.semaphoreByEpoch[s.epoch] = r
	if s.deleted || s.hasImpossible {
		b.m.unswept.Set(s.epoch, r)
	}
	if s.deleted {
		return
	}
	b.m.count(s.owner, owned{semaphores: 1})
	b.m.byName[s.name] = r
	b.m.names.Set(s.name, r)
}

func (b *builder) addSession(d *decoder) {
	s := d.session()
	if !b.valid(d, s.id, false) {
		return
	}
	r := b.m.sessions.add(s)
	b.m.bySession.Load(s.id, r) // the ids rise
	b.m.count(s.owner, s.records())
	b.m.deadlines.set(r, s.id, s.deadlineMS)
	if s.itemTerms != nil {
		b.m.itemBytes += s.itemTerms.bytes()
	}
}

func (b *builder) addLease(d *decoder) {
	l := b.lease(d)
	if _, twice := b.m.leaseOf(l.session, l.target()); b.valid(d, l.token, twice || l.semaphore != 0 && !b.m.markSlots(l.semaphore, l.slots)) {
		b.m.linkLease(b.m.leases.add(l))
	}
}

func (b *builder) addKey(d *decoder) {
	k := d.key()
	if _, twice := b.m.byKey[k.keyName]; !b.valid(d, k.order, twice) {
		return
	}
	if k.place == 0 {
		if _, err := DecodeResult([]byte(k.result)); err != nil {
			d.Fail()
			return
		}
	}
	r := b.m.keys.add(k)
	b.followOneShot(d, r, &k)
	if k.place != 0 {
		b.keysByPlace[k.place] = append(b.keysByPlace[k.place], r)
	}
	b.m.byKey[k.keyName] = r
	b.m.countKey(&k, 1)
	b.m.queueKey(r)
}

// followOneShot ties a key with an outcome to the session with which the key ends.
func (b *builder) followOneShot(d *decoder, r ref, k *key) {
	if k.place != 0 || k.session == 0 {
		return
	}
	session, ok := b.m.bySession.Get(k.session)
	if !ok || b.m.sessions.at(session).key != 0 {
		d.Fail()
		return
	}
	b.m.sessions.mut(session).key = r
}

func (b *builder) addMark(d *decoder) {
	v := d.mark()
	last := v.atMS
	if b.m.marks.length > 0 {
		at := b.m.marks.head + b.m.marks.length - 1
		last = b.m.marks.pages[at/markPage][at%markPage].atMS
	}
	if _, twice := b.m.marked[v.hash]; twice || v.atMS < last {
		d.Fail()
		return
	}
	b.m.marks.push(v)
	b.m.marked[v.hash] = struct{}{}
}

func (b *builder) addEntry(d *decoder) {
	w := b.listEntry(d)
	if _, twice := b.m.byEntry[leaseKey{w.session, w.target()}]; !b.valid(d, w.order, twice) {
		return
	}
	r := b.m.entries.add(w)
	b.entryByOrder[w.order] = r
	b.m.linkEntry(r)
}

func (b *builder) addNotice(d *decoder) {
	n := b.notice(d)
	if b.valid(d, n.place, false) {
		b.m.linkNotice(b.m.notices.add(n))
	}
}

func (b *builder) addRequest(d *decoder) {
	r := b.request(d)
	conflict := len(r.members) == 0
	for i, want := range r.members {
		waits := !r.isDown && b.m.byWait[leaseKey{r.session, want.target()}] != 0
		conflict = conflict || waits || countOf(r.members[:i], want.target()) != 0
	}
	if r.listEntry != 0 {
		e := b.m.entries.at(r.listEntry)
		conflict = conflict || e.waiting != 0 || e.session != r.session
	}
	if b.valid(d, r.place, conflict) {
		b.m.linkRequest(b.m.requests.add(r))
	}
}

func (b *builder) addEnded(d *decoder) {
	e := d.ended()
	if _, twice := b.m.byEnded[e.id]; b.valid(d, e.order, twice) {
		b.m.fileEnded(e)
	}
}

func (b *builder) addRevoked(d *decoder) {
	v := revoked{session: d.Uint(), epoch: d.Uint(), order: d.Uint(), atMS: d.Int(), cause: d.endOfLease(), reason: d.Text(), group: d.groupName()}
	if _, twice := b.m.byRevoked[v.key()]; b.valid(d, v.order, twice || v.cause == 0) {
		b.m.fileRevoked(v)
	}
}

func (b *builder) addItem(d *decoder) {
	i := b.item(d)
	_, lives := b.m.itemNames.Get(i.name)
	_, stays := b.m.tombstoneOf[i.name]
	if !b.valid(d, i.created, lives || stays) {
		return
	}
	r := b.m.items.add(i)
	b.m.itemBytes += i.bytes()
	b.m.count(i.owner, owned{items: 1, itemBytes: i.bytes()})
	if i.tombstone {
		b.m.fileTombstone(r)
		return
	}
	b.m.itemNames.Set(i.name, r)
	b.m.moveItem(r, 0, i.holder)
}

func (b *builder) addFolder(d *decoder) {
	f := d.folder()
	if _, twice := b.m.byFolder.Get(f.text); b.valid(d, f.order, twice || len(f.names) == 0) {
		r := b.m.folders.add(f)
		b.m.byFolder.Set(f.text, r)
		b.m.linkFolder(r)
	}
}

// session reads a session id and returns the session.
func (b *builder) session(d *decoder) ref {
	r, ok := b.m.bySession.Get(d.Uint())
	if !ok {
		d.Fail()
	}
	return r
}

// semaphore reads an epoch and returns the semaphore.
func (b *builder) semaphore(d *decoder) ref {
	r, ok := b.semaphoreByEpoch[d.Uint()]
	if !ok {
		d.Fail()
	}
	return r
}

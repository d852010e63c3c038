package fsm

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/signalbox/signalbox/internal/wire"
)

// A snapshot consists of: magic | format version | feature level | sections | tag 0 and a CRC32C of all bytes before
// it. A section is a tag, a number of records, and each record after its length. Records are in canonical order
// (semaphores by epoch, sessions by id, leases by token, requests by place, ended sessions and keys by order), so that
// equal states give equal bytes on every node.
const (
	snapshotMagic   = "SIGNALBX"
	snapshotVersion = 1
)

// The sections. A tag is never used again for another section.
const (
	sectionEnd        = 0
	sectionState      = 1
	sectionSemaphores = 2
	sectionSessions   = 3
	sectionLeases     = 4
	sectionRequests   = 5
	sectionEnded      = 6
	sectionKeys       = 7
	sectionEntries    = 8
	sectionNotices    = 9
	sectionMarks      = 10
	sectionRevoked    = 11
	sectionItems      = 12
	sectionFolders    = 13
	sectionSettings   = 14
	sectionLanes      = 15
	sectionReturns    = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Frozen is an immutable copy of the state of a machine at one index. A goroutine may use it while another goroutine
// uses the machine.
type Frozen struct {
	state
	tables
}

// Freeze returns a copy of the state. It costs one pointer for each page of 32 records; the machine copies a shared
// page before it changes the page.
func (m *Machine) Freeze() *Frozen {
	return &Frozen{
		state: m.state,
		tables: tables{
			semaphores: m.semaphores.freeze(),
			sessions:   m.sessions.freeze(),
			leases:     m.leases.freeze(),
			requests:   m.requests.freeze(),
			entries:    m.entries.freeze(),
			notices:    m.notices.freeze(),
			ended:      m.ended.freeze(),
			keys:       m.keys.freeze(),
			marks:      m.marks.freeze(),
			revoked:    m.revoked.freeze(),
			items:      m.items.freeze(),
			folders:    m.folders.freeze(),
			lanes:      m.lanes.freeze(),
			returns:    m.returns.freeze(),
		},
	}
}

// Write writes the snapshot in O(n log n), since it sorts the records. Equal states give equal bytes.
func (f *Frozen) Write(w io.Writer) error {
	return f.write(&snapshotWriter{w: bufio.NewWriterSize(w, 256<<10)})
}

func (f *Frozen) write(s *snapshotWriter) error {
	s.raw([]byte(snapshotMagic))
	s.header(f.feature)
	s.section(sectionState, 1)
	s.record(func(e *encoder) { e.state(&f.state) })
	f.writeRecords(s)
	s.section(sectionEnd, 0)
	s.raw(binary.BigEndian.AppendUint32(nil, s.crc))
	if s.err == nil {
		s.err = s.w.Flush()
	}
	return s.err
}

func (f *Frozen) writeRecords(s *snapshotWriter) {
	writeTable(s, sectionSemaphores, &f.semaphores, func(r *semaphore) uint64 { return r.epoch }, (*encoder).semaphore)
	f.writeSettings(s)
	f.writeLanes(s)
	writeTable(s, sectionSessions, &f.sessions, func(r *session) uint64 { return r.id }, (*encoder).session)
	writeTable(s, sectionLeases, &f.leases, func(r *lease) uint64 { return r.token }, f.encodeLease)
	if f.returns.live > 0 {
		writeTable(s, sectionReturns, &f.returns, func(r *timedReturn) uint64 { return r.order }, f.encodeReturn)
	}
	writeTable(s, sectionKeys, &f.keys, func(r *key) uint64 { return r.order }, (*encoder).key)
	writeTable(s, sectionEntries, &f.entries, func(r *listEntry) uint64 { return r.order }, f.encodeListEntry)
	writeTable(s, sectionRequests, &f.requests, func(r *request) uint64 { return r.place }, f.encodeRequest)
	writeTable(s, sectionNotices, &f.notices, func(r *notice) uint64 { return r.place }, (*encoder).notice)
	writeTable(s, sectionEnded, &f.ended, func(r *ended) uint64 { return r.order }, (*encoder).ended)
	s.section(sectionMarks, f.marks.length)
	f.marks.each(func(v *mark) { s.record(func(e *encoder) { e.mark(v) }) })
	writeTable(s, sectionRevoked, &f.revoked, func(r *revoked) uint64 { return r.order }, (*encoder).revoked)
	writeTable(s, sectionItems, &f.items, func(r *item) uint64 { return r.created }, f.encodeItem)
	writeTable(s, sectionFolders, &f.folders, func(r *folder) uint64 { return r.order }, (*encoder).folder)
}

// writeSettings writes the settings of semaphores, by epoch. It leaves out semaphores without settings.
func (f *Frozen) writeSettings(s *snapshotWriter) {
	list := f.semaphores.refs(func(r *semaphore) uint64 { return r.epoch })
	list = slices.DeleteFunc(list, func(r ref) bool { return !f.semaphores.at(r).hasSettings() })
	if len(list) == 0 {
		return
	}
	s.section(sectionSettings, len(list))
	for _, r := range list {
		s.record(func(e *encoder) { e.semaphoreSettingsOf(f.semaphores.at(r)) })
	}
}

// writeLanes writes the groups, by the epochs of their semaphores and by name.
func (f *Frozen) writeLanes(s *snapshotWriter) {
	if f.lanes.live == 0 {
		return
	}
	epoch := func(r ref) uint64 { return f.semaphores.at(f.lanes.at(r).semaphore).epoch }
	list := slices.SortedFunc(maps.Keys(maps.Collect(f.lanes.all())), func(a, b ref) int {
		return cmp.Or(cmp.Compare(epoch(a), epoch(b)), cmp.Compare(f.lanes.at(a).group, f.lanes.at(b).group))
	})
	s.section(sectionLanes, len(list))
	for _, r := range list {
		s.record(func(e *encoder) { e.lane(f.lanes.at(r), epoch(r)) })
	}
}

// writeTable writes the records of a table as a section, in the order of their keys.
func writeTable[T any](s *snapshotWriter, tag byte, records *table[T], key func(*T) uint64, encode func(*encoder, *T)) {
	list := records.refs(key)
	s.section(tag, len(list))
	for _, r := range list {
		s.record(func(e *encoder) { encode(e, records.at(r)) })
	}
}

// snapshotWriter keeps the first error, and the checksum of the bytes written.
type snapshotWriter struct {
	w   *bufio.Writer
	crc uint32
	err error
	e   encoder
}

func (s *snapshotWriter) raw(buf []byte) {
	if s.err == nil {
		s.crc = crc32.Update(s.crc, castagnoli, buf)
		_, s.err = s.w.Write(buf)
	}
}

// header writes the format version and the feature level at which all records are encoded.
func (s *snapshotWriter) header(level uint32) {
	s.e.feature = level
	s.raw(binary.AppendUvarint([]byte{snapshotVersion}, uint64(level)))
}

func (s *snapshotWriter) section(tag byte, records int) {
	s.e.buf = append(s.e.buf[:0], tag)
	s.e.uint(uint64(records))
	s.raw(s.e.buf)
}

// record writes the length of a record and the record.
func (s *snapshotWriter) record(encode func(*encoder)) {
	s.e.buf = s.e.buf[:0]
	encode(&s.e)
	if len(s.e.buf) > maxRecordBytes && s.err == nil { // snapshotReader would refuse the record
		s.err = fmt.Errorf("a record of %d bytes can't be part of a snapshot", len(s.e.buf))
	}
	var length [binary.MaxVarintLen64]byte
	s.raw(length[:binary.PutUvarint(length[:], uint64(len(s.e.buf)))])
	s.raw(s.e.buf)
}

// snapshotReader reads the output of snapshotWriter.
type snapshotReader struct {
	r       *bufio.Reader
	crc     uint32
	feature uint32 // the level at which the records are encoded
}

// header reads the feature level, which follows the format version.
func (s *snapshotReader) header(version byte) error {
	if version != snapshotVersion {
		return fmt.Errorf("format version %d, this program knows %d", version, snapshotVersion)
	}
	level, err := binary.ReadUvarint(s)
	if err != nil {
		return err
	}
	if level == 0 {
		return wire.ErrMalformed
	}
	s.feature = uint32(level)
	return CheckLevel(level)
}

func (s *snapshotReader) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.crc = crc32.Update(s.crc, castagnoli, []byte{b})
	}
	return b, err
}

func (s *snapshotReader) full(buf []byte) error {
	if _, err := io.ReadFull(s.r, buf); err != nil {
		return err
	}
	s.crc = crc32.Update(s.crc, castagnoli, buf)
	return nil
}

// maxRecordBytes bounds the length of a record. The largest records are a session's
// metadata and a stored outcome of 4,096 results.
const maxRecordBytes = 16 << 20

// record reads a record into buf, which is reused for the next record.
func (s *snapshotReader) record(buf *[]byte) error {
	length, err := binary.ReadUvarint(s)
	if err != nil {
		return err
	}
	if length > maxRecordBytes {
		return fmt.Errorf("a record of %d bytes: %w", length, wire.ErrMalformed)
	}
	if uint64(cap(*buf)) < length {
		*buf = make([]byte, length)
	}
	*buf = (*buf)[:length]
	return s.full(*buf)
}

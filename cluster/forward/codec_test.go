package forward

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// codecFrames returns one frame of each kind.
func codecFrames() map[string][]byte {
	ok := &fsm.Result{Code: fsm.OK, Session: 9, Grants: []fsm.Grant{{Semaphore: "a", Epoch: 1, Count: 2, Token: 3}}}
	var m pendingFrames
	m.replies = []reply{
		{1, statusDone, applied{2, 3, ok}},
		{sequence: 300, status: statusOverloaded},
	}
	var replies bytes.Buffer
	_, _, _ = m.write(&replies, nil, nil)
	m = pendingFrames{ends: []end{{4, applied{5, 6, &fsm.Result{Code: fsm.Deleted, Place: 4}}}}}
	var ends bytes.Buffer
	_, _, _ = m.write(&ends, nil, nil)
	commands := commandsFrame{readingMS: 70_000, commands: []framedCommand{
		{sequence: 1, listens: true, class: lead.ClassListed, patienceMS: 250, data: []byte("one")}, {sequence: 2, data: nil},
		{sequence: 300, class: lead.ClassSingle, patienceMS: 2000, data: []byte("three")},
	}}
	return map[string][]byte{
		"commands":    commands.append(nil),
		"hello":       (&helloFrame{term: 3, origin: 1 << 63, number: 300, open: true}).append(nil),
		"clock":       (&clockFrame{readingMS: 70_000, ageMS: 3, frames: 7}).append(nil),
		"fence":       (&fenceFrame{index: 1000}).append(nil),
		"read":        (&readAsk{term: 7, number: 8}).append(nil),
		"replies":     replies.Bytes(),
		"conclusions": ends.Bytes(),
		"reading":     (&readReply{number: 1, status: statusDone, index: 2, nowMS: 3}).append(nil),
		"refused":     (&readReply{number: 1, status: statusRefused}).append(nil),
	}
}

// codecDecode decodes a frame's body by its kind.
func codecDecode(kind frameKind, body []byte) (any, error) {
	switch kind {
	case frameCommands:
		return orNil(decodeCommands(body))
	case frameRead:
		return orNil(decodeReadAsk(body))
	case frameHello:
		return orNil(decodeHello(body))
	case frameClock:
		return orNil(decodeClock(body))
	case frameFence:
		return orNil(decodeFence(body))
	case frameReplies:
		return orNil(decodeReplies(body))
	case frameConclusions:
		return orNil(decodeConclusions(body))
	case frameReading:
		return orNil(decodeReading(body))
	}
	return nil, errFrame
}

func orNil[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// codecEncode is the opposite of codecDecode, without the head.
func codecEncode(decoded any) []byte {
	var out bytes.Buffer
	switch v := decoded.(type) {
	case commandsFrame:
		out.Write(v.append(nil))
	case readAsk:
		out.Write(v.append(nil))
	case helloFrame:
		out.Write(v.append(nil))
	case clockFrame:
		out.Write(v.append(nil))
	case fenceFrame:
		out.Write(v.append(nil))
	case []reply:
		_, _, _ = (&pendingFrames{replies: v}).write(&out, nil, nil)
	case []end:
		_, _, _ = (&pendingFrames{ends: v}).write(&out, nil, nil)
	case readReply:
		out.Write(v.append(nil))
	}
	return out.Bytes()[min(out.Len(), frameHeader+1):]
}

func TestFramesGoThereAndBack(t *testing.T) {
	var stream bytes.Buffer
	frames := codecFrames()
	for _, frame := range frames {
		stream.Write(frame)
	}
	r := bufio.NewReader(&stream)
	for range frames {
		frame, err := readFrame(r, make([]byte, 0, 8))
		must(t, err)
		decoded, err := codecDecode(frameKind(frame[0]), frame[1:])
		if err != nil {
			t.Fatalf("kind %d: %v", frame[0], err)
		}
		again, err := codecDecode(frameKind(frame[0]), codecEncode(decoded))
		if err != nil || !reflect.DeepEqual(decoded, again) {
			t.Fatalf("kind %d: %+v came back as %+v, %v", frame[0], decoded, again, err)
		}
	}
	if _, err := readFrame(r, nil); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
}

// TestFramesAreForEver: the bytes of each kind of frame are part of the peer protocol's
// version.
func TestFramesAreForEver(t *testing.T) {
	want := map[string]string{
		"commands":    "0000001c01f0a204030107fa01036f6e6502000000ac0204d00f057468726565",
		"hello":       "0000000f030380808080808080808001ac0201",
		"clock":       "0000000614f0a2040307",
		"fence":       "0000000315e807",
		"read":        "00000003020708",
		"replies":     "0000001d118280808000010002030f008082808080400901016101040300ac0202",
		"reading":     "000000051301000203",
		"conclusions": "0000000e1281808080000405060413800404",
		"refused":     "00000003130101",
	}
	frames := codecFrames()
	for name, frame := range frames {
		if got := hex.EncodeToString(frame); got != want[name] {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
	}
	if len(want) != len(frames) {
		t.Errorf("%d frames, want %d", len(frames), len(want))
	}
}

// TestNumbersAreForEver: the numbers of frames, statuses and classes mean the same in every
// version.
func TestNumbersAreForEver(t *testing.T) {
	kinds := []frameKind{frameCommands, frameRead, frameHello, frameReplies, frameConclusions, frameReading, frameClock, frameFence}
	if want := []frameKind{1, 2, 3, 17, 18, 19, 20, 21}; !slices.Equal(kinds, want) {
		t.Errorf("the kinds of frames are %d, want %d", kinds, want)
	}
	classes := []lead.Class{lead.ClassRenewal, lead.ClassRelease, lead.ClassSingle, lead.ClassListed}
	if want := []lead.Class{0, 1, 2, 3}; !slices.Equal(classes, want) {
		t.Errorf("the classes of commands are %d, want %d", classes, want)
	}
	for number, want := range []outcome.Verdict{{}, {Fate: outcome.Refused}, outcome.Failed.Because(outcome.ErrOverloaded),
		outcome.Failed.Because(outcome.ErrStorageFull), outcome.Failed.Because(outcome.ErrNotApplied), outcome.Failed.Because(outcome.ErrSplitState),
		outcome.Failed.Because(outcome.ErrBelowLevel), {Fate: outcome.Late}} {
		if got := statuses[number]; got != want || statusOf(want) != status(number) {
			t.Errorf("status %d means %+v, and %+v has status %d", number, got, want, statusOf(want))
		}
	}
}

// TestFrameDecodersAreStrict: no frame that was cut short, made longer or has an
// unknown flag or status is taken.
func TestFrameDecodersAreStrict(t *testing.T) {
	for name, frame := range codecFrames() {
		kind, body := frameKind(frame[frameHeader]), frame[frameHeader+1:]
		for cut := range body {
			if v, err := codecDecode(kind, body[:cut]); err == nil {
				t.Errorf("%s: %d bytes of %d make %+v", name, cut, len(body), v)
			}
		}
		if v, err := codecDecode(kind, append(bytes.Clone(body), 0)); err == nil {
			t.Errorf("%s: with a byte more: %+v", name, v)
		}
		for cut := 1; cut < len(frame); cut++ {
			if _, err := readFrame(bufio.NewReader(bytes.NewReader(frame[:cut])), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: a stream of %d bytes: %v", name, cut, err)
			}
		}
	}
	for name, frame := range map[string][]byte{
		"empty":        {0, 0, 0, 0},
		"too long":     {0, 64, 0, 1, byte(frameRead)},
		"far too long": {255, 255, 255, 255, byte(frameRead)},
	} {
		if _, err := readFrame(bufio.NewReader(bytes.NewReader(frame)), nil); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := commandsFrame{commands: make([]framedCommand, batchCommands+1)}
	for name, frame := range map[string]struct {
		kind frameKind
		body []byte
	}{
		"unknown flag":      {frameCommands, []byte{1, 1, 1, flagsKnown + 1, 0, 0}},
		"unknown openness":  {frameHello, []byte{1, 1, 1, 2}},
		"unknown status":    {frameReplies, []byte{1, 1, statusCount}},
		"negative time":     {frameReading, append([]byte{1, 0, 1}, bytes.Repeat([]byte{255}, 9)...)},
		"too many commands": {frameCommands, many.append(nil)[frameHeader+1:]},
		"lying count":       {frameReplies, []byte{255, 255, 255, 255, 15}},
		"no result":         {frameConclusions, []byte{1, 1, 1, 1, 1, 99}},
	} {
		if v, err := codecDecode(frame.kind, frame.body); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// FuzzForwardFrames: whatever a peer sends makes an error or a frame that can be
// written and read again, and never costs more memory than it has bytes.
func FuzzForwardFrames(f *testing.F) {
	for _, frame := range codecFrames() {
		f.Add(frame[frameHeader:])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) == 0 {
			return
		}
		decoded, err := codecDecode(frameKind(frame[0]), frame[1:])
		if err != nil {
			return
		}
		again, err := codecDecode(frameKind(frame[0]), codecEncode(decoded))
		if lists, ok := decoded.([]reply); ok && len(lists) == 0 {
			return // an empty list is not written
		}
		if lists, ok := decoded.([]end); ok && len(lists) == 0 {
			return
		}
		if err != nil || !reflect.DeepEqual(decoded, again) {
			t.Fatalf("%+v came back as %+v, %v", decoded, again, err)
		}
	})
}

// TestOutboxFillsFrames: much mail makes several frames, each within its bound,
// and a count of any size is read back.
func TestOutboxFillsFrames(t *testing.T) {
	const count = 20_000
	var m pendingFrames
	for i := range count {
		m.replies = append(m.replies, reply{
			uint64(i), statusDone, applied{1, 2, &fsm.Result{Subject: "a semaphore of some length, so that it adds up"}},
		})
	}
	var out bytes.Buffer
	if _, _, err := m.write(&out, nil, nil); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(&out)
	frames, next := 0, uint64(0)
	for ; next < count; frames++ {
		frame, err := readFrame(r, nil)
		must(t, err)
		if len(frame) > frameFill+4096 {
			t.Fatalf("a frame of %d bytes", len(frame))
		}
		replies, err := decodeReplies(frame[1:])
		must(t, err)
		for _, reply := range replies {
			if reply.sequence != next {
				t.Fatalf("reply %d instead of %d", reply.sequence, next)
			}
			next++
		}
	}
	if frames < 4 {
		t.Errorf("%d frames", frames)
	}
}

// TestOutboxCountsTheMembersOfLists: a few replies to renewals of thousands are as much
// as thousands of small ones, until they are taken.
func TestOutboxCountsTheMembersOfLists(t *testing.T) {
	o := newOutbox(nil)
	put := func(m *pendingFrames) {
		m.replies = append(m.replies, reply{status: statusDone, applied: applied{result: &fsm.Result{Each: make([]fsm.Result, 4095)}}})
		m.ends = append(m.ends, end{applied: applied{result: &fsm.Result{Grants: make([]fsm.Grant, 4095)}}})
	}
	for range 2 {
		for i := range maxOutbox / 8192 {
			if !o.add(put) {
				t.Fatalf("cut off after %d replies", i)
			}
		}
		if _, ok := o.takeAll(pendingFrames{}); !ok {
			t.Fatal("shut")
		}
	}
	for range maxOutbox / 8192 {
		o.add(put)
	}
	if o.add(put) {
		t.Error("not cut off")
	}
}

// TestOutboxCutsOffASlowPeer: the mail for a peer that does not read is bounded.
func TestOutboxCutsOffASlowPeer(t *testing.T) {
	o := newOutbox(nil)
	put := func(m *pendingFrames) { m.replies = append(m.replies, reply{}) }
	if !o.add(func(m *pendingFrames) { m.replies = make([]reply, maxOutbox-1) }) || !o.add(put) {
		t.Fatal("cut off too early")
	}
	for range 2 {
		if o.add(put) {
			t.Fatal("not cut off")
		}
	}
	if err := o.write(io.Discard); err != nil { // returns, since it is shut
		t.Fatal(err)
	}
}

package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// damageSeed is the seed of TestDamagedFilesAreNeverBelieved. It makes damageCases
// damaged folders. SIGNALBOX_STORE_DAMAGE_SEED and SIGNALBOX_STORE_DAMAGE_CASES
// override them.
const damageSeed = 1

// fromEnvironment returns a number that an environment variable may override.
func fromEnvironment(t testing.TB, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return number
}

// truth is what a folder holds.
type truth struct {
	folder    string
	older     map[string][]byte // the files as they were somewhat earlier
	log       []*raft.Log       // from index 1 on
	snapshots map[string][]byte
	covered   uint64 // index of the newest snapshot
	stable    map[string]string
}

// makeTruth fills a folder as a node would, in many transactions, so that the
// files also have pages that are no longer in use and hold older states.
func makeTruth(t *testing.T) truth {
	t.Helper()
	made := truth{
		folder: storetest.Folder(t), older: map[string][]byte{}, log: bigEntries(1, 210), covered: 100, snapshots: map[string][]byte{},
		stable: map[string]string{"CurrentTerm": "\x00\x00\x00\x00\x00\x00\x00\x03", "LastVoteTerm": "\x00\x00\x00\x00\x00\x00\x00\x03", "LastVoteCand": "n2:8711"},
	}
	s := openStore(t, made.folder)
	vote := func(term uint64, candidate string) {
		err := errors.Join(s.Stable().SetUint64([]byte("CurrentTerm"), term), s.Stable().SetUint64([]byte("LastVoteTerm"), term),
			s.Stable().Set([]byte("LastVoteCand"), []byte(candidate)))
		storetest.Must(t, err)
	}
	vote(2, "n3:8711")
	for batch := range 30 {
		storetest.Must(t, s.Logs().StoreLogs(made.log[7*batch:7*batch+7]))
		switch batch {
		case 10:
			made.take(t, s, 50)
		case 20:
			vote(3, "n2:8711")
		case 22:
			made.take(t, s, made.covered)
		case 27:
			drain(t, s) // what follows is in the journal alone
			for _, name := range filesOf(made.folder) {
				made.older[name] = storetest.ReadTrimmed(t, made.folder, name)
			}
		}
	}
	abandon(t, s)
	return made
}

func (made *truth) take(t *testing.T, s *Store, index uint64) {
	content := storetest.Bytes(index, 256<<10+5000) // more than a chunk
	made.snapshots[storetest.TakeSnapshot(t, s.Snapshots(), index, 3, content)] = content
}

// bigEntries are like entries, with data of very different lengths.
func bigEntries(first, last uint64) []*raft.Log {
	made := storetest.Entries(first, last, 3)
	for _, log := range made {
		log.Data = append(log.Data, storetest.Bytes(log.Index, int(log.Index*log.Index%2000))...)
	}
	return made
}

// swapped is the damage of two files of a folder that stand in each other's place.
const swapped = "swap two files"

// TestDamagedFilesAreNeverBelieved spoils the files of a real folder in hundreds
// of ways. Opening it must fail with an error that names folder and file, and the way back, or
// everything that is then read must be the truth. The way back is taken for each kind of damage
// of each file.
func TestDamagedFilesAreNeverBelieved(t *testing.T) {
	cases := fromEnvironment(t, "SIGNALBOX_STORE_DAMAGE_CASES", damageCases)
	seed := fromEnvironment(t, "SIGNALBOX_STORE_DAMAGE_SEED", damageSeed)
	made := makeTruth(t)
	files := map[string][]byte{}
	for _, name := range filesOf(made.folder) {
		files[name] = storetest.ReadTrimmed(t, made.folder, name)
	}
	// The log is what matters most, and the small files have little to test.
	names := []string{raftFile, raftFile, raftFile, snapshotsFile, snapshotsFile, witnessFile, recordFile}
	if journaled {
		names = append(names, journalFile, journalFile, journalFile)
	}
	kinds := append(slices.Concat(storetest.Damages, storetest.WholeFile), storetest.Damage{Name: swapped})
	verdicts, byKind, back := map[string]int{}, map[string]map[string]int{}, map[string]bool{}
	base := storetest.Folder(t)
	for i := range cases {
		r := rand.New(rand.NewPCG(seed, i))
		name, how := names[r.IntN(len(names))], kinds[i%uint64(len(kinds))]
		older := made.older[name]
		if older == nil {
			older = files[name]
		}
		spoilt := maps.Clone(files)
		if how.Name == swapped {
			other := names[r.IntN(len(names))]
			spoilt[name], spoilt[other] = files[other], files[name]
		} else {
			spoilt[name] = how.Spoil(r, slices.Clone(files[name]), older)
		}
		folder := filepath.Join(base, strconv.FormatUint(i, 10))
		writeFiles(t, folder, spoilt)
		verdict, refusal, err := made.check(t, folder)
		if refusal != nil && !back[how.Name+name] {
			back[how.Name+name] = true
			err = errors.Join(err, takeWayBack(folder, refusal))
		}
		if err != nil {
			t.Errorf("seed %d, case %d, %s of %s: %v", seed, i, how.Name, name, err)
		}
		if byKind[how.Name] == nil {
			byKind[how.Name] = map[string]int{}
		}
		verdicts[verdict]++
		byKind[how.Name][verdict]++
		storetest.Must(t, errors.Join(os.RemoveAll(folder), os.RemoveAll(folder+".damaged")))
	}
	t.Logf("journal %t, seed %d: %d damaged folders, %v; the way back was taken %d times", journaled, seed, cases, verdicts, len(back))
	for _, how := range kinds {
		t.Logf("%s: %v", how.Name, byKind[how.Name])
	}
	if cases >= damageCases && (verdicts["refused"] < int(cases/4) || verdicts["harmless"] == 0) {
		t.Errorf("of %d cases %v: that is not what spoilt files look like", cases, verdicts)
	}
}

// writeFiles makes a folder with these files; nil is a missing one.
func writeFiles(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	storetest.Must(t, os.Mkdir(folder, 0o700))
	for name, content := range files {
		if content == nil {
			continue
		}
		storetest.Must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
}

// theWayBack finds the command in the message of a damaged folder.
var theWayBack = regexp.MustCompile(`run "([^"]+)" and start it again`)

// takeWayBack does what the message says. The node then starts with an empty folder, which the
// others fill, and the damaged one stays.
func takeWayBack(folder string, refusal error) error {
	found := theWayBack.FindStringSubmatch(refusal.Error())
	if found == nil {
		return fmt.Errorf("the message has no way back: %w", refusal)
	}
	if output, err := exec.Command("sh", "-c", found[1]).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", found[1], err, output)
	}
	s, err := Open(options(folder))
	if err != nil {
		return fmt.Errorf("after %s: %w", found[1], err)
	}
	_, kept := os.Stat(folder + ".damaged")
	if !s.Empty() {
		err = errors.New("the folder is not empty")
	}
	return errors.Join(err, kept, s.Logs().StoreLogs(storetest.Entries(1, 5, 1)), s.Close())
}

// check opens a folder and compares it with the truth. The error says what was
// believed that isn't true.
func (made truth) check(t *testing.T, folder string) (verdict string, refusal, err error) {
	s, err := Open(options(folder))
	if err != nil {
		typed := (*damage.Error)(nil)
		if !errors.As(err, &typed) || typed.Folder != folder || !slices.Contains(filesOf(made.folder), typed.File) || !strings.Contains(err.Error(), folder+"/"+typed.File) {
			return "", nil, fmt.Errorf("the error doesn't say what is damaged: %w", err)
		}
		return "refused", err, nil
	}
	defer func() {
		if closed := s.Close(); closed != nil {
			t.Logf("close: %v", closed)
		}
	}()
	for _, compare := range []func(*Store) error{made.checkLog, made.checkStable, made.checkSnapshots} {
		if err := compare(s); errors.Is(err, damage.ErrDamaged) {
			return "found when read", nil, nil
		} else if err != nil {
			return "", nil, err
		}
	}
	// It must also be able to go on, and believe that later.
	more := bigEntries(uint64(len(made.log)+1), uint64(len(made.log)+20))
	if err := s.Logs().StoreLogs(more); err != nil {
		return "", nil, fmt.Errorf("the next entries: %w", err)
	}
	if err := s.Close(); err != nil {
		return "", nil, fmt.Errorf("close: %w", err)
	}
	made.log = append(slices.Clone(made.log), more...)
	again, err := Open(options(folder))
	if err != nil {
		return "", nil, fmt.Errorf("after going on: %w", err)
	}
	return "harmless", nil, errors.Join(made.checkLog(again), made.checkStable(again), made.checkSnapshots(again), again.Close())
}

// checkLog compares the log. Entries that the newest snapshot covers may be
// missing: Raft takes them for cut off.
func (made truth) checkLog(s *Store) error {
	last, err := s.Logs().LastIndex()
	if err != nil || last != uint64(len(made.log)) {
		return errors.Join(err, fmt.Errorf("the log ends at %d instead of %d", last, len(made.log)))
	}
	for _, want := range made.log {
		var got raft.Log
		err := s.Logs().GetLog(want.Index, &got)
		switch {
		case errors.Is(err, raft.ErrLogNotFound) && want.Index <= made.covered:
		case err != nil:
			return fmt.Errorf("entry %d: %w", want.Index, err)
		case got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data):
			return fmt.Errorf("entry %d has other bytes", want.Index)
		}
	}
	return nil
}

func (made truth) checkStable(s *Store) error {
	for key, want := range made.stable {
		if got, err := s.Stable().Get([]byte(key)); err != nil || string(got) != want {
			return errors.Join(err, fmt.Errorf("stable value %q is %q instead of %q", key, got, want))
		}
	}
	return nil
}

// checkSnapshots compares the snapshots. One that is damaged may be gone when the
// log makes up for it.
func (made truth) checkSnapshots(s *Store) error {
	metas, err := s.Snapshots().List()
	if err != nil {
		return err
	}
	for _, meta := range metas {
		want, known := made.snapshots[meta.ID]
		_, reader, err := s.Snapshots().Open(meta.ID)
		if err != nil {
			return err
		}
		var got bytes.Buffer
		_, err = got.ReadFrom(reader)
		if err = errors.Join(err, reader.Close()); err != nil {
			return err
		}
		if !known || !bytes.Equal(got.Bytes(), want) {
			return fmt.Errorf("snapshot %s has other bytes", meta.ID)
		}
	}
	return nil
}

// TestDamageUnderARunningNode spoils files of an open store, where bbolt maps
// them: reads must give the truth or an error, and the process must live.
func TestDamageUnderARunningNode(t *testing.T) {
	made := makeTruth(t)
	spoilFile := map[string]func(*os.File, int64) error{
		"zero pages": func(f *os.File, size int64) error {
			_, err := f.WriteAt(make([]byte, size-int64(4*os.Getpagesize())), int64(4*os.Getpagesize()))
			return err
		},
		"cut off": func(f *os.File, size int64) error { return f.Truncate(size / 2) }, // reads beyond it raise SIGBUS
		"flip data": func(f *os.File, size int64) error {
			content := make([]byte, size)
			if _, err := f.ReadAt(content, 0); err != nil {
				return err
			}
			for at := bytes.Index(content, []byte("command ")); at >= 0; { // inside the data of entries only
				content[at] ^= 1
				at = bytes.Index(content, []byte("command "))
			}
			_, err := f.WriteAt(content, 0)
			return err
		},
	}
	for name, shorten := range spoilFile {
		t.Run(name, func(t *testing.T) {
			folder := copyFolder(t, made.folder)
			var reported error
			s, err := Open(Options{Folder: folder, NodeID: "n1", OnDamage: func(err error) { reported = err }})
			storetest.Must(t, err)
			f, err := os.OpenFile(filepath.Join(folder, raftFile), os.O_RDWR, 0)
			storetest.Must(t, err)
			storetest.Must(t, errors.Join(shorten(f, int64(len(storetest.ReadTrimmed(t, folder, raftFile)))), f.Close()))
			err = made.checkLog(s)
			storetest.WantError(t, err, damage.ErrDamaged, folder+"/"+raftFile)
			storetest.WantError(t, reported, damage.ErrDamaged)
			storetest.WantError(t, s.Logs().StoreLogs(storetest.Entries(1000, 1000, 9)), damage.ErrDamaged)
			if err := s.Close(); err != nil {
				t.Logf("close: %v", err)
			}
		})
	}
}

// TestFileThatIsGoneUnderARunningNode empties the file: then bbolt faults where it
// holds its locks, and nothing that wants them ever comes back. Close must.
func TestFileThatIsGoneUnderARunningNode(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 300, 1)
	drain(t, s)
	storetest.Must(t, os.Truncate(filepath.Join(folder, raftFile), 0))
	storetest.WantError(t, s.Logs().GetLog(5, &raft.Log{}), damage.ErrDamaged, raftFile)
	storetest.WantError(t, s.Logs().StoreLogs(storetest.Entries(301, 301, 1)), damage.ErrDamaged)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("the file was closed: bbolt gives its locks back now, and Guard.Close need not give up")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close hangs")
	}
}

package recorder

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrKilled is the error of each change of the disk after the program's end by KillAt.
var ErrKilled = errors.New("the program was killed")

// root is the node of the folder that is recorded. Files and folders are nodes.
const root = 1

// event is one change, or a sync.
type event struct {
	kind  kind
	node  int    // the file, or the folder whose names are synced
	at    int64  // of a write, or the size of a truncation
	bytes []byte // of a write
	parts []part // of a change of names
	note  string // for messages
}

type kind int

const (
	write kind = iota
	syncedWrite
	truncate
	syncFile
	names
	syncNames
	comment
)

func (k kind) String() string {
	return [...]string{"write", "synced write", "truncate", "sync", "names", "sync names", "--"}[k]
}

// part says what a name in a folder stands for after a change; node is 0 if for nothing.
type part struct {
	folder int
	name   string
	node   int
}

// Record is what was done in a folder. Safe for concurrent use.
type Record struct {
	path string
	base Image

	mu      sync.Mutex
	events  []event
	kill    int                    // the events after which the program is dead; 0 for never
	over    bool                   // Stop was called
	nodes   int                    // the highest node
	folders map[int]map[string]int // the names in each folder, as the program sees them
	files   map[string]int         // the nodes of base's files by path
}

// current is the record that is being made.
var current atomic.Pointer[Record]

// Start begins a record of a folder, which is made with the content of an image, all of
// it synced.
func Start(folder string, image Image) (*Record, error) {
	r := &Record{path: folder, base: image, nodes: root, folders: map[int]map[string]int{root: {}}, files: map[string]int{}}
	for _, path := range image.folders {
		r.folders[r.add(path)] = map[string]int{}
	}
	for path := range image.files {
		r.files[path] = r.add(path)
	}
	current.Store(r)
	return r, image.Write(folder)
}

// add makes the node of a path of the image.
func (r *Record) add(path string) int {
	r.nodes++
	above, name := r.find(filepath.Join(r.path, path))
	r.folders[above][name] = r.nodes
	return r.nodes
}

// Stop ends the record.
func (r *Record) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	current.Store(nil)
}

// Note adds an event that changes nothing, for messages.
func (r *Record) Note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.events = append(r.events, event{kind: comment, note: text})
}

// Len returns how many events there are.
func (r *Record) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

// KillAt makes each change of the disk fail once there are so many events, 0 for never: the
// program does no more. What it has written is in the page cache, for the next program to read.
func (r *Record) KillAt(events int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill = events
}

// Killed reports whether the program could do no more.
func (r *Record) Killed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed()
}

func (r *Record) killed() bool { return r.kill > 0 && len(r.events) >= r.kill && !r.over }

// Last describes the events before a moment, for messages.
func (r *Record) Last(moment, count int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines strings.Builder
	for i := max(0, moment-count); i < min(moment+2, len(r.events)); i++ {
		e := r.events[i]
		fmt.Fprintf(&lines, "%6d %s %s", i, e.kind, e.note)
		if e.kind == write || e.kind == syncedWrite {
			fmt.Fprintf(&lines, " %d bytes at %d", len(e.bytes), e.at)
		}
		fmt.Fprintln(&lines)
	}
	return lines.String()
}

// find returns the folder of a path, 0 if it is not recorded, and its name there; name is ""
// for the recorded folder itself. The lock is held, unless the record is not shared yet.
func (r *Record) find(path string) (folder int, name string) {
	inside, err := filepath.Rel(r.path, path)
	if err != nil || inside == ".." || strings.HasPrefix(inside, "../") {
		return 0, ""
	}
	if inside == "." {
		return root, ""
	}
	folder = root
	elements := strings.Split(inside, "/")
	for _, element := range elements[:len(elements)-1] {
		folder = r.folders[folder][element]
	}
	return folder, elements[len(elements)-1]
}

// node returns what a path stands for, 0 for nothing. The lock is held.
func (r *Record) node(path string) int {
	folder, name := r.find(path)
	if name == "" {
		return folder
	}
	return r.folders[folder][name]
}

// do makes a change and adds its event, unless the program is dead. Both happen before any
// other change.
func (r *Record) do(change func() (event, error)) error { return r.doSynced(false, change) }

// doSynced is do for a change that may be a write with its sync: a program that ends in the
// middle of one has written, and nothing is synced.
func (r *Record) doSynced(synced bool, change func() (event, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	killed := r.killed()
	if killed && (!synced || len(r.events) > r.kill) {
		return ErrKilled
	}
	e, err := change()
	if err != nil || r.over {
		return err
	}
	for _, p := range e.parts {
		r.name(p)
	}
	if killed {
		e.kind, err = write, ErrKilled
	}
	r.events = append(r.events, e)
	return err
}

// name takes a changed name into what the program sees.
func (r *Record) name(p part) {
	if p.node == 0 {
		delete(r.folders[p.folder], p.name)
		return
	}
	r.folders[p.folder][p.name] = p.node
}

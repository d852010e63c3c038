package recorder

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// disk is what a loss of power may leave.
type disk struct {
	files map[int]*versions
	names []unit
}

// versions are what may be on the disk of a file: the first ones are synced.
type versions struct {
	base    content
	sectors map[int64][]sector // those that were changed
	sizes   []int64
}

// unit is a change of names that takes place as a whole or not at all.
type unit struct {
	parts  []part
	synced map[int]bool // folders
}

// Crash returns the folder as a loss of power leaves it after a number of events, while the
// next one is under way. random chooses; without it nothing is kept that was not synced.
func (r *Record) Crash(moment int, random *rand.Rand) Image {
	if random == nil {
		return r.crash(moment, func(int) int { return 0 })
	}
	// Some losses keep nearly all, some nearly nothing: what lacks one sector differs from what has one.
	share := []float64{0, 0.05, 0.5, 0.95, 1}[random.IntN(5)]
	return r.crash(moment, func(choices int) int {
		if random.Float64() < share {
			return choices - 1
		}
		return random.IntN(choices - 1)
	})
}

// NameCrashes returns, for each change of names that is not synced after a number of events, the
// folder with it and without all else that was not synced, and with all else and without it.
func (r *Record) NameCrashes(moment int) (images []Image) {
	pending := 0
	for _, u := range r.replay(moment).names {
		if !u.isSynced() {
			pending++
		}
	}
	for number := range pending {
		for _, durable := range []bool{false, true} {
			last := -1 // names are asked for first
			images = append(images, r.crash(moment, func(choices int) int {
				if last++; (last == number) == durable {
					return choices - 1
				}
				return 0
			}))
		}
	}
	return images
}

// replay makes the changes of a number of events, and begins the next one.
func (r *Record) replay(moment int) *disk {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &disk{files: map[int]*versions{}}
	for path, node := range r.files {
		base := r.base.files[path]
		d.files[node] = &versions{base: base, sectors: map[int64][]sector{}, sizes: []int64{base.size}}
	}
	for _, e := range r.events[:moment] {
		d.apply(e)
	}
	if moment < len(r.events) {
		d.begin(r.events[moment])
	}
	return d
}

// crash returns what is left when keep chooses one of so many states of each thing that was not
// synced; the highest one is the newest.
func (r *Record) crash(moment int, keep func(choices int) int) Image {
	d, tree := r.replay(moment), r.baseNames()
	for _, u := range d.names {
		if !u.isSynced() && keep(2) == 0 {
			continue
		}
		for _, p := range u.parts {
			if tree[p.folder] == nil {
				tree[p.folder] = map[string]int{}
			}
			tree[p.folder][p.name] = p.node
		}
	}
	image := Image{files: map[string]content{}}
	image.collect(r, d, tree, root, "", keep)
	return image
}

// isSynced reports whether the names in all folders of the change were synced after it.
func (u unit) isSynced() bool {
	return !slices.ContainsFunc(u.parts, func(p part) bool { return !u.synced[p.folder] })
}

// baseNames returns the names in each folder at the beginning.
func (r *Record) baseNames() map[int]map[string]int {
	tree := map[int]map[string]int{root: {}}
	nodes := map[string]int{".": root}
	// Nodes are counted in the order in which Start added them.
	for i, path := range r.base.folders {
		nodes[path] = root + 1 + i
	}
	maps.Copy(nodes, r.files)
	for path, node := range nodes {
		above := nodes[filepath.Dir(path)]
		if path == "." {
			continue
		}
		if tree[above] == nil {
			tree[above] = map[string]int{}
		}
		tree[above][filepath.Base(path)] = node
	}
	return tree
}

// collect takes in the content of a folder.
func (i *Image) collect(r *Record, d *disk, tree map[int]map[string]int, folder int, path string, keep func(int) int) {
	for _, name := range slices.Sorted(maps.Keys(tree[folder])) {
		node, inside := tree[folder][name], filepath.Join(path, name)
		switch {
		case node == 0:
		case r.folders[node] != nil:
			i.folders = append(i.folders, inside)
			i.collect(r, d, tree, node, inside, keep)
		default:
			i.files[inside] = d.file(node).choose(keep)
		}
	}
}

func (d *disk) file(node int) *versions {
	if d.files[node] == nil {
		d.files[node] = &versions{sectors: map[int64][]sector{}, sizes: []int64{0}}
	}
	return d.files[node]
}

// apply makes the change of an event that has ended.
func (d *disk) apply(e event) {
	d.begin(e)
	switch e.kind {
	case syncedWrite:
		d.file(e.node).sync(e.at/sectorBytes, (e.at+int64(len(e.bytes))-1)/sectorBytes)
	case syncFile:
		f := d.file(e.node)
		for at := range f.sectors {
			f.sync(at, at)
		}
		f.sync(0, -1)
	case syncNames:
		for _, u := range d.names {
			u.synced[e.node] = true
		}
	}
}

// begin makes the change of an event, without its sync.
func (d *disk) begin(e event) {
	switch e.kind {
	case write, syncedWrite:
		d.file(e.node).write(e.at, e.bytes)
	case truncate:
		d.file(e.node).truncate(e.at)
	case names:
		d.names = append(d.names, unit{e.parts, map[int]bool{}})
	}
}

// of returns the contents of a sector that may be on the disk.
func (v *versions) at(at int64) []sector {
	if v.sectors[at] == nil {
		v.sectors[at] = []sector{v.base.sectors[at]}
	}
	return v.sectors[at]
}

// size is the file's size as the program sees it.
func (v *versions) size() int64 { return v.sizes[len(v.sizes)-1] }

func (v *versions) write(begin int64, bytes []byte) {
	end := begin + int64(len(bytes))
	for at := begin / sectorBytes; at*sectorBytes < end; at++ {
		var whole [sectorBytes]byte
		before := v.at(at)
		if last := before[len(before)-1]; last != nil {
			whole = *last
		}
		from := max(begin, at*sectorBytes)
		copy(whole[from-at*sectorBytes:], bytes[from-begin:])
		v.sectors[at] = append(before, newSector(whole[:]))
	}
	if end > v.size() {
		v.sizes = append(v.sizes, end)
	}
}

func (v *versions) truncate(size int64) {
	changed := maps.Clone(v.base.sectors)
	if changed == nil {
		changed = map[int64]sector{}
	}
	for at := range v.sectors {
		changed[at] = nil
	}
	for at := range changed {
		if rest := size - at*sectorBytes; rest < sectorBytes {
			before := v.at(at)
			last := before[len(before)-1]
			if last != nil && rest > 0 {
				last = newSector(last[:rest])
			} else {
				last = nil
			}
			v.sectors[at] = append(before, last)
		}
	}
	v.sizes = append(v.sizes, size)
}

// sync makes some sectors, and the size, durable.
func (v *versions) sync(first, last int64) {
	for at := first; at <= last; at++ {
		if all := v.sectors[at]; all != nil {
			v.sectors[at] = all[len(all)-1:]
		}
	}
	v.sizes = v.sizes[len(v.sizes)-1:]
}

// choose returns what is on the disk.
func (v *versions) choose(keep func(int) int) content {
	c := content{size: v.size(), sectors: maps.Clone(v.base.sectors)}
	if len(v.sizes) > 1 {
		c.size = v.sizes[keep(len(v.sizes))]
	}
	if c.sectors == nil {
		c.sectors = map[int64]sector{}
	}
	for _, at := range slices.Sorted(maps.Keys(v.sectors)) {
		all := v.sectors[at]
		c.sectors[at] = all[0]
		if len(all) > 1 {
			c.sectors[at] = all[keep(len(all))]
		}
	}
	for at, s := range c.sectors {
		if rest := c.size - at*sectorBytes; rest <= 0 {
			delete(c.sectors, at)
		} else if rest < sectorBytes && s != nil {
			c.sectors[at] = newSector(s[:rest])
		}
	}
	return c
}

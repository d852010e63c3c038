package recorder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// sectorBytes is what a disk writes as a whole.
const sectorBytes = 512

// sector is the content of a sector; nil is one of zeros. It is never changed.
type sector = *[sectorBytes]byte

// content is a file without its sectors of zeros. It is never changed.
type content struct {
	size    int64
	sectors map[int64]sector
}

// Image is the content of a folder. Its zero value is an empty one. It is never changed.
type Image struct {
	folders []string // paths inside the folder, the outer ones first
	files   map[string]content
}

// Names returns the paths of the image's files and their sizes, for messages.
func (i Image) Names() (names []string) {
	for path, c := range i.files {
		names = append(names, fmt.Sprintf("%s (%d bytes)", path, c.size))
	}
	slices.Sort(names)
	return names
}

// Write puts the content into a folder, which is made.
func (i Image) Write(folder string) error {
	err := os.MkdirAll(folder, 0o700)
	for _, path := range i.folders {
		err = errors.Join(err, os.Mkdir(filepath.Join(folder, path), 0o700))
	}
	for path, c := range i.files {
		err = errors.Join(err, c.write(filepath.Join(folder, path)))
	}
	return err
}

func (c content) write(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = file.Truncate(c.size)
	for at, s := range c.sectors {
		if s != nil && err == nil {
			_, err = file.WriteAt(s[:min(sectorBytes, c.size-at*sectorBytes)], at*sectorBytes)
		}
	}
	return errors.Join(err, file.Close())
}

// Read returns the content of a folder.
func Read(folder string) (Image, error) {
	image := Image{files: map[string]content{}}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name, nameErr := filepath.Rel(folder, path)
		if err := errors.Join(err, nameErr); err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			image.folders = append(image.folders, name)
			return nil
		}
		bytes, err := os.ReadFile(path)
		c := content{size: int64(len(bytes)), sectors: map[int64]sector{}}
		for at := int64(0); at*sectorBytes < c.size; at++ {
			if s := newSector(bytes[at*sectorBytes:]); s != nil {
				c.sectors[at] = s
			}
		}
		image.files[name] = c
		return err
	})
	return image, err
}

// newSector returns the sector at the beginning of some bytes, which may be fewer.
func newSector(bytes []byte) sector {
	var s [sectorBytes]byte
	copy(s[:], bytes)
	if s == [sectorBytes]byte{} {
		return nil
	}
	return &s
}

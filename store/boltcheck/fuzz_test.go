package boltcheck

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"os"
	"testing"
)

// FuzzWalk walks any file, also with the checksums of its meta pages made right:
// it must neither panic, nor run for ever, nor take memory out of proportion.
func FuzzWalk(f *testing.F) {
	content, _ := randomBolt(f, 1, 100)
	f.Add(content, uint64(0), byte(0))
	f.Add(content[:os.Getpagesize()], uint64(9), byte(1))
	f.Fuzz(func(t *testing.T, content []byte, at uint64, flip byte) {
		content = bytes.Clone(content)
		if len(content) > 0 {
			content[at%uint64(len(content))] ^= flip
		}
		for _, meta := range []int{0, os.Getpagesize()} {
			if len(content) >= meta+80 {
				sum := fnvSum(content[meta+16 : meta+72])
				binary.NativeEndian.PutUint64(content[meta+72:], sum)
			}
		}
		keys := 0
		err := Walk(bytes.NewReader(content), int64(len(content)), func(_ Item) error {
			keys++
			return nil
		})
		if err == nil && keys > len(content) {
			t.Errorf("%d keys in %d bytes", keys, len(content))
		}
	})
}

func fnvSum(content []byte) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(content)
	return sum.Sum64()
}

package httpapi

import (
	"encoding/binary"
	"strings"
	"sync"
)

// iconPicture is the page icon, a railway semaphore at "stop": r is its red arm,
// w the white bar on it, k the post, a dot nothing.
const iconPicture = `
................
................
.rrrrrwwrrrrkk..
.rrrrrwwrrrrkk..
.rrrrrwwrrrrkk..
.rrrrrwwrrrrkk..
............kk..
............kk..
............kk..
............kk..
............kk..
............kk..
............kk..
............kk..
.........kkkkkkk
.........kkkkkkk`

// throttleIcon answers the icon as an ICO file of 16 × 16 pixels of 32 bits.
var throttleIcon = sync.OnceValue(func() string {
	rows := strings.Split(strings.TrimSpace(iconPicture), "\n")
	const side, header, entry, bitmap, mask = 16, 6, 16, 40, 16 * 4
	const pixels = side * side * 4
	le := binary.LittleEndian
	out := make([]byte, 0, header+entry+bitmap+pixels+mask)
	for _, v := range []uint16{0, 1, 1} { // an icon file with one image
		out = le.AppendUint16(out, v)
	}
	out = append(out, side, side, 0, 0)
	out = le.AppendUint16(out, 1)  // plane
	out = le.AppendUint16(out, 32) // bits a pixel
	out = le.AppendUint32(out, bitmap+pixels+mask)
	out = le.AppendUint32(out, header+entry)
	out = le.AppendUint32(out, bitmap)
	out = le.AppendUint32(out, side)
	out = le.AppendUint32(out, 2*side) // the picture and its mask
	out = le.AppendUint16(out, 1)
	out = le.AppendUint16(out, 32)
	for _, v := range []uint32{0, pixels, 0, 0, 0, 0} {
		out = le.AppendUint32(out, v)
	}
	colours := map[byte]uint32{'r': 0xFFC8102E, 'w': 0xFFFFFFFF, 'k': 0xFF333333} // alpha, red, green, blue
	for y := side - 1; y >= 0; y-- {
		for x := range side {
			out = le.AppendUint32(out, colours[rows[y][x]])
		}
	}
	return string(append(out, make([]byte, mask)...)) // the mask: alpha says it all
})

package fsm

import (
	"unicode"
	"unicode/utf8"
)

// ValidName reports whether a semaphore may have this name: valid UTF-8 of 1
// to 512 bytes without control characters. Names are compared byte by byte.
func ValidName(name string) bool {
	if len(name) == 0 || len(name) > maxNameBytes {
		return false
	}
	return validText(name)
}

// ValidReason reports whether an operator's reason is acceptable: valid UTF-8
// of up to 1,024 bytes without control characters; it may be empty.
func ValidReason(reason string) bool {
	return len(reason) <= maxReasonBytes && validText(reason)
}

// ValidMetadata reports whether pairs is a metadata map: up to 16 pairs of
// valid UTF-8, 1 KiB in all, sorted by key without duplicates.
func ValidMetadata(pairs []Pair) bool {
	bytes := 0
	for i, p := range pairs {
		bytes += len(p.Key) + len(p.Value)
		if i > 0 && pairs[i-1].Key >= p.Key {
			return false
		}
		if !utf8.ValidString(p.Key) || !utf8.ValidString(p.Value) {
			return false
		}
	}
	return len(pairs) <= maxMetadataPairs && bytes <= maxMetadataBytes
}

func validText(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

package fsm

import (
	"encoding/hex"
	"fmt"
)

// FeatureLevel is the highest feature level that this program knows. The level
// of a cluster is part of its state: every rule, operation, member, record and
// code that is newer than level 0 is used only from its own level on, so that
// all members apply an entry alike, whichever of them was upgraded first.
//
//	0  the state of the program before levels: read, and raised by the first Reign
//	1  cluster id, owners, versions of settings, trace contexts
const FeatureLevel uint32 = 1

// newerLevelError reports bytes of a feature level that this program doesn't know.
func newerLevelError(found uint64) error {
	return fmt.Errorf("feature level %d, this program knows %d: written by a newer version", found, FeatureLevel)
}

// ClusterID names one cluster for ever: 128 random bits. Zero is "not known".
type ClusterID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// ParseClusterID reads what String wrote.
func ParseClusterID(text string) (id ClusterID, err error) {
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != len(id) {
		return ClusterID{}, fmt.Errorf("%q is no cluster id of %d hexadecimal digits", text, 2*len(id))
	}
	return ClusterID(decoded), nil
}

// FeatureLevel is the level in force. It never goes down.
func (m *Machine) FeatureLevel() uint32 { return m.feature }

// ClusterID is the id of the cluster whose log this machine applies, zero
// before the first reign entry of level 1.
func (m *Machine) ClusterID() ClusterID { return m.cluster }

// Needs returns the lowest feature level at which a command may be proposed:
// that of its operation, or of the newest member that is set.
func Needs(c Command) uint32 {
	needs := operations[c.Op()].since
	if newer, is := c.(interface{ needs() uint32 }); is {
		needs = max(needs, newer.needs())
	}
	return needs
}

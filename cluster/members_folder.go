package cluster

import (
	"strings"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store"
)

// folderMark is between the address and the folder of a member in Raft's
// configuration. No address contains it.
const folderMark = "#"

// markAddress returns the address of a member as Raft's configuration has it: with
// the id of the folder that was admitted under its node id. So the record of who was
// admitted is replicated and takes effect exactly as the configuration itself does,
// at the moment it is in a node's log; and since Raft keeps its connections by that
// text, no vote and no acknowledgement comes over a connection to another folder.
func markAddress(address string, folder store.FolderID) raft.ServerAddress {
	return raft.ServerAddress(plainAddress(raft.ServerAddress(address)) + folderMark + folder.String())
}

// splitAddress returns the address to dial, and the folder that was admitted; zero if
// none is named: a member of the first configuration has the folder with which it
// formed the cluster.
func splitAddress(marked raft.ServerAddress) (address string, folder store.FolderID) {
	address, mark, is := strings.Cut(string(marked), folderMark)
	if is && folder.UnmarshalText([]byte(mark)) != nil {
		return address, store.FolderID{}
	}
	return address, folder
}

// plainAddress is the address to dial.
func plainAddress(marked raft.ServerAddress) string {
	address, _ := splitAddress(marked)
	return address
}

// moveAddress returns another address with the mark of the one before it.
func moveAddress(before raft.ServerAddress, address string) raft.ServerAddress {
	if _, folder := splitAddress(before); folder != (store.FolderID{}) {
		return markAddress(address, folder)
	}
	return raft.ServerAddress(address)
}

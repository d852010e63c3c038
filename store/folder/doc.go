// Package folder owns a node's data folder as a whole: it makes, locks and recognises
// it, and keeps the files that name its owner and bound its content from below.
//
// The folder of another node, another cluster, another program or a newer version is refused
// and stays as it is. After a crash while a folder is made, the next Open makes it again; a
// complete folder never gets an empty file in place of a lost file. A crash while the content
// is replaced leaves the old content or the new content.
//
// The package knows the other files by name alone (Config.Files); package store calls it
// and opens them, in a folder that is open. Package cluster/offline reads its Facts. It
// imports package damage, starts no goroutine, and touches the files named in folder.go.
//
//   - folder.go: Open: inspect, lock, fill; the folder's path and parts
//   - record.go: the file FORMAT: format and identity, as text
//   - identity.go: the ids of node, cluster and folder, while it is open
//   - witness.go: Witness, lower bounds of what is stored, in two slots
//   - reading.go: Look, which locks a folder and reads its facts
//   - replace.go: Replace, which puts other content into a folder in one step
//   - space.go: Space, watermarks of the free room; Reserve, room for a last term
//   - system_unix.go: locks of files, and free room
//   - system_other.go: refusals, on other systems
//   - errors.go: the reasons why a folder is refused
package folder

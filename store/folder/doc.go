// Package folder owns a node's data folder as a whole: it makes, locks and recognises the folder, and keeps the files
// that name its owner and that bound its content from below.
//
// It refuses the folder of another node, another cluster, another program or a newer version, and does not change it.
// If a crash interrupts the making of a folder, the next Open makes it again. In a complete folder, a lost file is
// never replaced by an empty file. If a crash interrupts a replacement of the content, the old content or the new
// content remains.
//
// The package knows the files of other packages by name only (Config.Files). Package store calls it, and opens these
// files. Package cluster/offline reads its Facts. It imports package damage, starts no goroutine, and touches the files
// named in folder.go.
//
//   - folder.go: Open: inspects, locks and fills the folder; the folder's path and parts
//   - record.go: the file FORMAT: format and identity, as text
//   - identity.go: the ids of node, cluster and folder, while the folder is open
//   - witness.go: Witness, lower bounds of what is stored, in two slots
//   - reading.go: Look, which locks a folder and reads its facts
//   - replace.go: Replace, which puts other content into a folder in one step
//   - space.go: Space, whether free space is low; Reserve, disk space for a last term or vote
//   - system_unix.go: locks of files, and free space
//   - system_other.go: refusals, on other systems
//   - errors.go: the reasons why a folder is refused
package folder

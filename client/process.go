package client

import (
	"maps"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The bounds of the nodes for the metadata of a session.
const (
	metadataPairs = 16
	metadataBytes = 1024
)

// process returns what identifies this process to people who look at a semaphore. The name of the user may come
// from a directory on the network, so it is looked up once.
var process = sync.OnceValue(func() (pairs [][2]string) {
	host, _ := os.Hostname() // without one: no pair
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil { // a container's user often has no name
		name = u.Username
	}
	return [][2]string{{"host", host}, {"pid", strconv.Itoa(os.Getpid())}, {"user", name}}
})

// describe puts the metadata of a session into the body of a request, with this process's pairs.
func (c *Client) describe(body map[string]any, metadata map[string]string) {
	if !c.cfg.Anonymous {
		metadata = withProcess(metadata)
	}
	if len(metadata) > 0 {
		body["metadata"] = metadata
	}
}

// withProcess adds this process to metadata. The caller's pairs stay as they are, and are never refused because
// of the added ones: a pair that does not fit is left out.
func withProcess(metadata map[string]string) map[string]string {
	all, size := make(map[string]string, len(metadata)+3), 0
	maps.Copy(all, metadata)
	for key, value := range metadata {
		if size += len(key) + len(value); !utf8.ValidString(key) || !utf8.ValidString(value) {
			return metadata // JSON lengthens invalid UTF-8
		}
	}
	for _, pair := range process() {
		key, value := pair[0], strings.ToValidUTF8(pair[1][:min(len(pair[1]), 64)], "")
		if _, taken := all[key]; taken || value == "" || len(all) == metadataPairs || size+len(key)+len(value) > metadataBytes {
			continue
		}
		all[key], size = value, size+len(key)+len(value)
	}
	return all
}

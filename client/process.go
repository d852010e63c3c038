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

// The limits of the nodes for the metadata of a session.
const (
	metadataPairs = 16
	metadataBytes = 1024
)

// process returns pairs of metadata that tell people which process this is. It is computed once, because the look-up
// of the user's name may ask a directory on the network.
var process = sync.OnceValue(func() (pairs [][2]string) {
	host, _ := os.Hostname() // "" on failure: withProcess leaves the pair out
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil { // fails for a user without a name, common in containers
		name = u.Username
	}
	return [][2]string{{"host", host}, {"pid", strconv.Itoa(os.Getpid())}, {"user", name}}
})

// describe puts metadata into the body of a request, together with this process's pairs.
func (c *Client) describe(body map[string]any, metadata map[string]string) {
	if !c.cfg.Anonymous {
		metadata = withProcess(metadata)
	}
	if len(metadata) > 0 {
		body["metadata"] = metadata
	}
}

// withProcess adds this process's pairs to metadata, as far as they fit into the limits and metadata has no pair of
// the same name, so that the nodes accept the metadata if they would accept the caller's.
func withProcess(metadata map[string]string) map[string]string {
	all, size := make(map[string]string, len(metadata)+3), 0
	maps.Copy(all, metadata)
	for key, value := range metadata {
		if size += len(key) + len(value); !utf8.ValidString(key) || !utf8.ValidString(value) {
			return metadata // because invalid UTF-8 gets longer in JSON
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

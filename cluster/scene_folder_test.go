package cluster

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// sceneFolderCommands are the commands of scripts about folders and processes that are not what
// they seem to be.
var sceneFolderCommands = map[string]func(s *scene, t *testing.T, words []string) []string{
	// other N: another cluster of N nodes, with the same ids and addresses, which the next
	// commands are about, until `switch`.
	"other": func(s *scene, t *testing.T, words []string) []string {
		s.elsewhere = s.lifeNodes
		s.newCluster(t, words)
		return nil
	},
	"switch": func(s *scene, _ *testing.T, _ []string) []string {
		s.lifeNodes, s.elsewhere = s.elsewhere, s.lifeNodes
		return nil
	},
	// exchange N: the node and that of the other cluster, which don't run, exchange folders.
	"exchange": func(s *scene, _ *testing.T, words []string) []string {
		here := s.node(words[0])
		for _, there := range s.elsewhere.all {
			if there.id == here.id {
				here.store, there.store = there.store, here.store
			}
		}
		return nil
	},
	// set-aside N: of a node that does not run, the folder, which leaves it without.
	"set-aside": func(s *scene, _ *testing.T, words []string) []string {
		n := s.node(words[0])
		s.aside[n.id], n.store = n.store, nil
		return nil
	},
	// put-back N…: the folders that were set aside, in place of the nodes' own. Nodes that run
	// are killed before.
	"put-back": func(s *scene, _ *testing.T, words []string) []string {
		for _, n := range s.list(words) {
			s.wipe(n)
			n.store = s.aside[n.id]
			delete(s.aside, n.id)
		}
		return nil
	},
	// copy N…: stops nodes, and sets copies of their folders aside.
	"copy": func(s *scene, t *testing.T, words []string) []string {
		for _, n := range s.list(words) {
			s.kill(n)
			path, folder := n.store.Path(), t.TempDir()
			s.must(n.store.Close())
			s.must(os.CopyFS(folder, os.DirFS(path)))
			n.store, s.aside[n.id] = s.openFolder(n, path), s.openFolder(n, folder)
		}
		return nil
	},
	// restored on|off: whether nodes start as restored from here on.
	"restored": func(s *scene, _ *testing.T, words []string) []string {
		s.setups = append(s.setups, func(config *Config) { config.Restored = words[0] == "on" })
		return nil
	},
	// tokens N: the leader gives so many. The first is compared with the last before it.
	"tokens": func(s *scene, t *testing.T, words []string) (lines []string) {
		count, err := strconv.Atoi(words[0])
		s.must(err)
		session := s.open(s.leader(), time.Hour)
		for i := range count {
			token := s.acquire(s.leader(), session, "db")
			s.do(s.leader(), fsm.Release{Session: session, Name: "db"}, fsm.OK)
			if s.token > 0 && i == 0 {
				lines = append(lines, fmt.Sprintf("the next token is larger: %t, by a jump: %t", token > s.token, token > s.token+1<<31))
			}
			s.token = token
		}
		return lines
	},
	// backup: by the leader.
	"backup": func(s *scene, _ *testing.T, _ []string) []string {
		s.file = s.backupOf(s.leader())
		return nil
	},
	// restore [end-sessions] [named] [through N]: of the last backup, by the leader. `named` names the cluster that made it.
	"restore": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		order := backup.Order{EndSessions: slices.Contains(words, "end-sessions")}
		h, _, err := backup.Read(bytes.NewReader(s.file))
		s.must(err)
		if slices.Contains(words, "named") {
			order.From = (*fsm.ClusterID)(&h.Cluster)
		}
		return s.outcomeOf(time.Minute, func() error {
			done, err := n.Restore(t.Context(), bytes.NewReader(s.file), order)
			s.restored = done.Index
			if err == nil && (done.From != h || done.Index <= h.Index) {
				t.Errorf("%+v of %+v", done, h)
			}
			return err
		})
	},
	// twin N: starts another process with the node's id, at the address twin:8711, on the folder
	// that was set aside or an empty one.
	"twin": func(s *scene, _ *testing.T, words []string) []string {
		n := s.node(words[0])
		folder := s.aside[n.id]
		delete(s.aside, n.id)
		if folder == nil {
			var err error
			folder, err = store.OpenEphemeral(n.id)
			s.must(err)
		}
		s.twin = identityTwin(s.lifeNodes, n, folder)
		s.label(s.twin)
		return nil
	},
	// mark N: how far the node's log is, and its configuration.
	"mark": func(s *scene, _ *testing.T, words []string) []string {
		n := s.node(words[0])
		s.marks[0] = n.raft().LastIndex()
		s.marks[1], _ = n.joining.Configuration()
		return nil
	},
	// slow N M: requests and replies between the nodes take 100 ms each.
	"slow": func(s *scene, _ *testing.T, words []string) []string {
		s.net.Delay(words[0], words[1], 100*time.Millisecond)
		s.net.Delay(words[1], words[0], 100*time.Millisecond)
		return nil
	},
	// session D through N: opens one.
	"session": func(s *scene, _ *testing.T, words []string) []string {
		words, n := s.through(words)
		ttl, err := time.ParseDuration(words[0])
		s.must(err)
		s.session = s.open(n, ttl)
		return nil
	},
	// try N: a start that is refused.
	"try": func(s *scene, t *testing.T, words []string) []string {
		n := s.node(words[0])
		s.openStore(n)
		config := Config{NodeID: n.id, Bind: n.id + ":8711", Network: s.net.Host(n.id), Store: n.store}
		for _, member := range s.all {
			config.Peers = append(config.Peers, Peer{ID: member.id, Address: member.id + ":8711"})
		}
		for _, setup := range s.setups {
			setup(&config)
		}
		s.net.Rejoin(n.id)
		_, err := Start(t.Context(), config)
		if err == nil {
			t.Fatalf("%s has started", n.id)
		}
		return []string{"refused: " + err.Error()}
	},
	// stranger ID HOST [N…]: a process with an empty folder and this list, at HOST:8711; without an id it ends.
	"stranger": func(s *scene, t *testing.T, words []string) []string {
		if len(words) == 0 {
			s.must(s.stranger.Close(t.Context()))
			s.must(s.stranger.store.Close())
			return nil
		}
		config := Config{NodeID: words[0], Bind: words[1] + ":8711", Network: s.net.Host(words[1])}
		if len(words) > 2 {
			config.Peers = []Peer{{ID: words[0], Address: config.Bind}}
		}
		for _, id := range words[2:] {
			config.Peers = append(config.Peers, Peer{ID: id, Address: id + ":8711"})
		}
		var err error
		config.Store, err = store.OpenEphemeral(words[0])
		s.must(err)
		node, err := Start(t.Context(), config)
		s.must(err)
		s.stranger = &testNode{Node: node, id: words[0], store: config.Store}
		return nil
	},
	// add-at ID ADDRESS through N: a member, or a new address of one.
	"add-at": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		lines := s.outcomeOf(time.Minute, func() error { return n.AddMember(t.Context(), words[0], words[1]) })
		return []string{foreignIDs.ReplaceAllString(lines[0], "<...>")}
	},
	// address N PORT: the node's address from its next start on, in its own list.
	"address": func(s *scene, _ *testing.T, words []string) []string {
		s.setups = append(s.setups, func(config *Config) {
			if i := slices.IndexFunc(config.Peers, func(p Peer) bool { return p.ID == words[0] }); i >= 0 && config.NodeID == words[0] {
				config.Peers = slices.Clone(config.Peers)
				config.Bind, config.Peers[i].Address = words[0]+":"+words[1], words[0]+":"+words[1]
			}
		})
		return nil
	},
	// move N PORT: the leader changes the address of a member.
	"move": func(s *scene, t *testing.T, words []string) []string {
		return s.outcomeOf(time.Minute, func() error { return s.leader().AddMember(t.Context(), words[0], words[0]+":"+words[1]) })
	},
	// raise NEXT: to the feature level of this program, or NEXT levels beyond.
	"raise": func(s *scene, t *testing.T, words []string) []string {
		words, n := s.through(words)
		next, err := strconv.ParseUint(words[0], 10, 32)
		s.must(err)
		lines := s.outcomeOf(time.Minute, func() error { return n.RaiseLevel(t.Context(), fsm.FeatureLevel+uint32(next)) })
		return []string{levelOf.ReplaceAllString(lines[0], "level L")}
	},
	// refusals REASON: how many streams nodes that run have refused until now, for "refused-more".
	"refusals": func(s *scene, t *testing.T, words []string) []string { s.refusals = s.refused(words[0]); return nil },
	// server N through M: the address of a member in the configuration of M.
	"server": func(s *scene, _ *testing.T, words []string) []string {
		words, n := s.through(words)
		server, _ := membership.Find(n.joining.Servers(), words[0])
		return []string{fmt.Sprintf("%s: %s at %s", server.ID, server.Suffrage, server.Address)}
	},
}

// foreignIDs are those of clusters and folders that are no part of the scene.
var foreignIDs = regexp.MustCompile(`\b[0-9a-f]{16,}\b`)

// levelOf is the number of a level, which rises with each release.
var levelOf = regexp.MustCompile(`level \d+`)

// refused counts the streams that nodes which run have refused for a reason.
func (s *scene) refused(reason string) (count float64) {
	for _, n := range s.list(nil) {
		count += refusedCount(s.t, n.joining.Port(), reason)
	}
	return count
}

func (s *scene) openFolder(n *testNode, path string) *store.Store {
	opened, err := store.Open(store.Options{NodeID: n.id, Folder: path, Journal: true})
	s.must(err)
	return opened
}

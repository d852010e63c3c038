package cluster

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/fsm"
)

// millionLeases is a backup of 1,000,000 leases, each of a session of its own.
func millionLeases(b *testing.B) []byte {
	b.Helper()
	r := newRestart(b, 1)
	r.fill(sized(1_000_000), 0, true)
	r.open()
	defer r.close()
	return benchBackup(b, r.nodes[0])
}

func benchBackup(b *testing.B, n *Node) []byte {
	b.Helper()
	made, err := n.Backup(b.Context())
	var file bytes.Buffer
	if err == nil {
		err = made.Write(&file)
	}
	must(b, err)
	return file.Bytes()
}

// BenchmarkRestoreMillionLeases reports how long a restore into an empty cluster takes, from its
// first byte until the state is in force on a majority, and until all nodes have it; and, for
// comparison, how long the file takes to be read and checked alone. All nodes share this machine.
//
//	go test ./cluster -run '^$' -bench RestoreMillionLeases -benchtime 1x
func BenchmarkRestoreMillionLeases(b *testing.B) {
	file := millionLeases(b)
	for range b.N {
		b.StopTimer()
		leader, followers := benchCluster(b)
		began := time.Now()
		header, _, err := backup.Read(bytes.NewReader(file))
		must(b, err)
		b.ReportMetric(time.Since(began).Seconds(), "read-s")
		b.StartTimer()
		began = time.Now()
		done, err := leader.Restore(b.Context(), bytes.NewReader(file), backup.Order{From: (*fsm.ClusterID)(&header.Cluster)})
		b.StopTimer()
		must(b, err)
		b.ReportMetric(time.Since(began).Seconds(), "restore-s")
		for _, n := range slices.Concat(followers, []*Node{leader}) {
			must(b, n.replica.Await(b.Context(), done.Index+1))
			n.View(func(m *fsm.Machine) {
				if _, _, leases, _ := m.Counts(); leases != sized(1_000_000) {
					b.Fatalf("%d leases", leases)
				}
			})
		}
		b.ReportMetric(time.Since(began).Seconds(), "all-s")
		b.ReportMetric(float64(len(file))/1e6, "file-MB")
	}
}

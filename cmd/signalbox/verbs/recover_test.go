package verbs

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cluster/offline"
	"github.com/signalbox/signalbox/cluster/probe"
)

// parsePeers parses "id=address,id=address".
func parsePeers(text string) (peers []probe.Peer, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		id, address, _ := strings.Cut(entry, "=")
		peers = append(peers, probe.Peer{ID: id, Address: address})
	}
	return peers, nil
}

// recoverWith returns the subcommand. typed is what a person types at the terminal.
func recoverWith(typed string) *cobra.Command {
	command := newRecover(parsePeers)
	command.SetIn(strings.NewReader(typed))
	return command
}

// TestRecoverAsks: recover changes nothing without the node's id. It says what the folder has and what may be missing.
func TestRecoverAsks(t *testing.T) {
	path := leaseFolder(t)
	flags := []string{"--data", path, "--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2"}
	for _, typed := range []string{"", "\n", "y\n", "n2\n"} {
		out, err := executed(recoverWith(typed), flags...)
		if err == nil || err.Error() != "not confirmed: the folder was not changed" || !strings.Contains(out, "1 semaphores, 2 sessions, 1 leases, 1 waiting requests.") ||
			!strings.Contains(out, "may have been acknowledged by the nodes that are lost") || !strings.Contains(out, "n2 at 127.0.0.1:2: ") {
			t.Errorf("after %q: %v, printed:\n%s", typed, err, out)
		}
	}
	before, err := offline.Inspect(path, 0)
	must(t, err)
	for i, confirm := range []struct {
		typed string
		more  []string
	}{{"n1\n", nil}, {"", []string{"--yes"}}} {
		out, err := executed(recoverWith(confirm.typed), append(flags, confirm.more...)...)
		after, failed := offline.Inspect(path, 0)
		if err != nil || failed != nil || after.CommittedIndex != before.CommittedIndex+uint64(i+1)<<32 || !strings.Contains(out, "is cluster "+after.Folder.Cluster+" now") {
			t.Errorf("confirmed: %v, %v, printed:\n%s", err, failed, out)
		}
	}
}

func TestRecoverRefuses(t *testing.T) {
	path := leaseFolder(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			_ = conn.Close()
		}
	}()
	alive := "n1=" + listener.Addr().String()
	check := func(want string, flags ...string) {
		t.Helper()
		if out, err := executed(recoverWith("n1\n"), flags...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: %v, printed %q", flags, err, out)
		}
	}
	check("needs --data and --peers")
	check("needs --data and --peers", "--data", path)
	check("no such file", "--data", path+"x", "--peers", alive)
	check(`lacks node "n1"`, "--data", path, "--peers", "n2=127.0.0.1:1")
	check("belong together", "--data", path, "--peers", alive, "--peer-cert", "x.pem")
	check("--peer-cert: ", "--data", path, "--peers", alive, "--peer-cert", "x.pem", "--peer-key", "x.pem", "--peer-ca", "x.pem")
	check("The folder was not changed. While a majority may come back, let it", "--data", path, "--peers", alive)
	must(t, os.Truncate(filepath.Join(path, "witness"), 0))
	check("or use what is sound by --up-to-damage", "--data", path, "--peers", alive)
}

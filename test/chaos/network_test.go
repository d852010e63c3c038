//go:build chaos && linux

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// network connects the nodes, and breaks links between them where it can.
type network interface {
	// host returns the address that a node binds; host(clients) is the address from which clients call.
	host(node int) string
	// command returns a command that runs a program in the network of the node.
	command(node int, program string, arguments ...string) *exec.Cmd
	// rule adds a rule to a node's packet filter, or deletes it.
	rule(node int, on bool, rule string)
	kind() string
}

// clients stands for the clients as an end of a link.
const clients = -1

// newNetwork returns namespaces if the system permits them, or else loopback, which can't break links.
func newNetwork(t *testing.T, nodes int) (n network, breaks bool) {
	t.Helper()
	if spaces, err := newNamespaces(t, nodes); err == nil {
		return spaces, true
	} else if os.Getenv("CHAOS_NETWORK") == "namespaces" {
		t.Fatal(err)
	} else {
		t.Logf("NOT CHECKED: faults of links: no network namespaces can be made here: %v", err)
	}
	return loopback{}, false
}

// namespaces gives each node a separate network, and connects them by a bridge in another namespace.
type namespaces struct {
	t      *testing.T
	prefix string // of the names of all namespaces and links
	subnet string // its first three numbers
}

func newNamespaces(t *testing.T, nodes int) (*namespaces, error) {
	t.Helper()
	n := &namespaces{t: t, prefix: fmt.Sprintf("sbx%d", os.Getpid()), subnet: fmt.Sprintf("10.213.%d", os.Getpid()%250)}
	removeStale()
	t.Cleanup(n.remove)
	hub := n.prefix + "h"
	steps := []string{
		"netns add " + hub,
		"-n " + hub + " link add br0 type bridge", "-n " + hub + " link set br0 up",
		"link add " + n.prefix + "c type veth peer name c netns " + hub,
		"addr add " + n.subnet + ".254/24 dev " + n.prefix + "c", "link set " + n.prefix + "c up",
		"-n " + hub + " link set c master br0 up",
	}
	for node := range nodes {
		space := n.space(node)
		steps = append(steps, "netns add "+space, "-n "+space+" link set lo up",
			fmt.Sprintf("-n %s link add v%d type veth peer name eth0 netns %s", hub, node, space),
			fmt.Sprintf("-n %s link set v%d master br0 up", hub, node),
			fmt.Sprintf("-n %s addr add %s/24 dev eth0", space, n.host(node)), "-n "+space+" link set eth0 up")
	}
	for _, step := range steps {
		if text, err := exec.Command("ip", strings.Fields(step)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ip %s: %w: %s", step, err, text)
		}
	}
	if text, err := exec.Command("ip", "netns", "exec", n.space(0), "iptables", "-S").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("iptables: %w: %s", err, text)
	}
	return n, nil
}

// ofRun matches the names of a run's namespaces, and extracts its process id.
var ofRun = regexp.MustCompile(`^sbx(\d+)(h|n\d+)$`)

// removeStale removes what killed runs have left.
func removeStale() {
	list, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		parts := ofRun.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		if _, err := os.Stat("/proc/" + parts[1]); os.IsNotExist(err) {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

// remove removes all namespaces and links. The kernel removes the links of a namespace some time after the namespace,
// and the next cluster has the same names, so we remove the link first.
func (n *namespaces) remove() {
	_ = exec.Command("ip", "link", "del", n.prefix+"c").Run()
	list, _ := exec.Command("ip", "netns", "list").Output()
	for line := range strings.Lines(string(list)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name == n.prefix+"h" || strings.HasPrefix(name, n.prefix+"n") {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

func (n *namespaces) space(node int) string { return n.prefix + "n" + strconv.Itoa(node+1) }

func (n *namespaces) kind() string { return "network namespaces" }

func (n *namespaces) host(node int) string {
	if node == clients {
		return n.subnet + ".254"
	}
	return fmt.Sprintf("%s.%d", n.subnet, node+1)
}

func (n *namespaces) command(node int, program string, arguments ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.space(node), program}, arguments...)...)
}

func (n *namespaces) rule(node int, on bool, rule string) {
	n.t.Helper()
	action := "-D"
	if on {
		action = "-A"
	}
	arguments := append([]string{"netns", "exec", n.space(node), "iptables", "-w", action}, strings.Fields(rule)...)
	if text, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
		n.t.Errorf("iptables %s %s: %v: %s", action, rule, err, text)
	}
}

// loopback is a network that can't break links.
type loopback struct{}

func (loopback) kind() string           { return "loopback" }
func (loopback) host(node int) string   { return fmt.Sprintf("127.0.0.%d", max(node, 0)+1) }
func (loopback) rule(int, bool, string) {}
func (loopback) command(_ int, program string, arguments ...string) *exec.Cmd {
	return exec.Command(program, arguments...)
}

//go:build compose && linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// containers is the cluster of docker-compose.yml, which scripts/compose-test.sh has started.
type containers struct {
	*client
	ids  [3]string
	name string // of the network
}

// TestCompose runs the usual operations on the containers. scripts/compose-test.sh runs it: the script builds the image,
// and removes everything afterwards.
func TestCompose(t *testing.T) {
	c := findContainers(t)
	for node := range c.ids {
		c.waitHealthy(t, node)
	}
	t.Run("image", c.image)
	t.Run("peers", c.peers)
	t.Run("every node writes and reads", c.everyNode)
	t.Run("rolling restart", c.rollingRestart)
	keeper := c.must(t, 0, http.MethodPost, "/v1/sessions", `{"ttl":"10m"}`, http.StatusCreated).Session
	c.must(t, 1, http.MethodPut, semaphorePath("kept"), `{"permits":1}`, http.StatusCreated)
	kept := c.must(t, 2, http.MethodPut, leasePath(keeper, "kept"), "", http.StatusOK)
	w := startCounters(t, c.client, 4)
	t.Run("kill the leader", func(t *testing.T) { c.killLeader(t, w) })
	t.Run("cut the leader off", func(t *testing.T) { c.cutOff(t, w, true) })
	t.Run("cut a follower off", func(t *testing.T) { c.cutOff(t, w, false) })
	w.finish(t, c.client)
	for node := range c.ids {
		now := c.must(t, node, http.MethodGet, leasePath(keeper, "kept"), "", http.StatusOK)
		if now.Token != kept.Token {
			t.Errorf("the lease kept through it all had token %d, on n%d it now has %d", kept.Token, node+1, now.Token)
		}
	}
	t.Run("README", c.readme) // the last, since it takes them down
}

// readme pastes the end of README's tour: the leader's container is restarted, and the lease still exists with its
// token.
func (c *containers) readme(t *testing.T) {
	script := tour(t, "README.md", "**5. Lose the leader.**", "## In your program")
	output := paste(t, "../..", strings.ReplaceAll(script, "docker-compose", os.Getenv("COMPOSE")), c.client)
	tokens := regexp.MustCompile(`"token":(\d+)`).FindAllStringSubmatch(output, -1)
	if len(tokens) != 2 || tokens[0][1] != tokens[1][1] || !regexp.MustCompile(`(?m)^n[123] leads$`).MatchString(output) {
		t.Errorf("README's tour doesn't show one token twice:\n%s", output)
	}
}

// findContainers asks Compose for what the script has started.
func findContainers(t *testing.T) *containers {
	t.Helper()
	project, compose := os.Getenv("COMPOSE_PROJECT_NAME"), strings.Fields(os.Getenv("COMPOSE"))
	if project == "" || len(compose) == 0 {
		t.Fatal("run it by scripts/compose-test.sh")
	}
	c := &containers{name: project + "_peers"}
	var bases [3]string
	for node := range c.ids {
		service := fmt.Sprintf("n%d", node+1)
		command := append(compose[1:], "-f", "../../docker-compose.yml", "ps", "-q", service)
		id, err := exec.Command(compose[0], command...).Output()
		if err != nil || len(id) == 0 {
			t.Fatalf("no container of %s: %v", service, err)
		}
		c.ids[node] = strings.TrimSpace(string(id))
		bases[node] = "http://127.0.0.1:" + os.Getenv(fmt.Sprintf("SIGNALBOX_PORT_%d", node+1))
	}
	c.client = newClient(bases[:]...)
	t.Cleanup(func() {
		for node, id := range c.ids {
			if t.Failed() {
				logs, _ := exec.Command("docker", "logs", "--tail", "40", id).CombinedOutput()
				t.Logf("n%d:\n%s", node+1, logs)
			}
		}
	})
	return c
}

// docker runs a command of Docker's and returns what it printed.
func docker(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.Command("docker", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v: %s", strings.Join(arguments, " "), err, output)
	}
	return strings.TrimSpace(string(output))
}

// waitHealthy waits until Docker reports that the container is healthy, which the program checks itself, and until the
// node replies through its published port.
func (c *containers) waitHealthy(t *testing.T, node int) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		state := docker(t, "inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", c.ids[node])
		if state != "running healthy" {
			return fmt.Errorf("n%d is %s", node+1, state)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		r, err := c.ask(ctx, node, http.MethodGet, "/readyz?verbose", "")
		if err == nil && r.status != http.StatusOK {
			err = fmt.Errorf("n%d: %s", node+1, r.Detail)
		}
		return err
	})
}

// image checks that the image is small, does not run as root, and publishes only the HTTP port.
func (c *containers) image(t *testing.T) {
	const most = 21_000_000
	bytes, err := strconv.Atoi(docker(t, "image", "inspect", "--format", "{{.Size}}", os.Getenv("SIGNALBOX_IMAGE")))
	if err != nil || bytes > most {
		t.Errorf("the image has %d bytes, more than %d (%v)", bytes, most, err)
	}
	user := docker(t, "inspect", "--format", "{{.Config.User}}", c.ids[0])
	if user == "" || strings.HasPrefix(user, "0") || strings.HasPrefix(user, "root") {
		t.Errorf("the container runs as %q", user)
	}
	if ports := docker(t, "port", c.ids[0]); ports != "8701/tcp -> 127.0.0.1:"+os.Getenv("SIGNALBOX_PORT_1") {
		t.Errorf("published ports: %q", ports)
	}
	stamped := docker(t, "exec", c.ids[0], "/signalbox", "version")
	number, commit := identify(os.Getenv("TESTED_COMMIT"))
	if want := "signalbox " + number + " commit " + commit; commit == unknownCommit || !strings.HasPrefix(stamped, want) {
		t.Errorf("it is %q, built as version %q", stamped, want)
	}
	t.Logf("%d bytes, user %s", bytes, user)
}

// peers checks that the nodes have certificates and accept only TLS, and that no node has the key with which more
// certificates could be made.
func (c *containers) peers(t *testing.T) {
	for node, id := range c.ids {
		page := metricsOf(t, &client{bases: c.bases[node : node+1], http: c.http})
		if !regexp.MustCompile(`(?m)^signalbox_certificate_days_left\{use="peer"\} 36[45]`).MatchString(page) ||
			!strings.Contains(page, "\nsignalbox_peer_plain_streams_total 0\n") {
			t.Errorf("n%d: no certificate, or streams without TLS", node+1)
		}
		for _, key := range []string{"/secrets/ca-key.pem", "/authority/ca-key.pem"} {
			if output, err := exec.Command("docker", "cp", id+":"+key, filepath.Join(t.TempDir(), "key")).CombinedOutput(); err == nil {
				t.Errorf("n%d has %s: %s", node+1, key, output)
			}
		}
	}
}

// everyNode writes through each node and reads the value through the next.
func (c *containers) everyNode(t *testing.T) {
	for node := range c.ids {
		name := fmt.Sprintf("by-n%d", node+1)
		c.must(t, node, http.MethodPut, semaphorePath(name), `{"permits":3}`, http.StatusCreated)
		c.must(t, node+1, http.MethodPost, semaphorePath(name)+"/leases", `{"count":2,"ttl":"5m"}`, http.StatusCreated)
		if s := c.must(t, node+2, http.MethodGet, semaphorePath(name), "", http.StatusOK); s.Held != 2 || s.Available != 1 {
			t.Errorf("%s: held %d, available %d", name, s.Held, s.Available)
		}
	}
	members := c.must(t, 0, http.MethodGet, "/v1/cluster", "", http.StatusOK).Members
	if len(members) != 3 {
		t.Errorf("%d members", len(members))
	}
}

// rollingRestart stops and starts one container after another under load.
func (c *containers) rollingRestart(t *testing.T) {
	f := startFleet(t, c.client, "db", 30, 60)
	for node, id := range c.ids {
		start := time.Now()
		docker(t, "stop", "-t", "20", id)
		took := time.Since(start)
		if status := docker(t, "inspect", "--format", "{{.State.ExitCode}}", id); status != "0" {
			t.Errorf("n%d ended with status %s", node+1, status)
		}
		f.unchanged(t, node+1)
		docker(t, "start", id)
		c.waitHealthy(t, node)
		f.goOn(t)
		f.unchanged(t, node)
		t.Logf("n%d: stopped in %v", node+1, took.Round(time.Millisecond))
		if took > 5*time.Second+slackOfDocker {
			t.Errorf("n%d took %v to stop", node+1, took)
		}
	}
	f.finish(t)
}

// slackOfDocker is how long Docker itself may take to stop a container.
const slackOfDocker = 2 * time.Second

// killLeader kills the leader's container with SIGKILL.
func (c *containers) killLeader(t *testing.T, w *counters) {
	leader := c.mustLead(t)
	first, second := others(leader)
	w.await(t, 20)
	docker(t, "kill", c.ids[leader]) // returns when the container is dead
	gap := firstGrant(t, c.client, first, second)
	t.Logf("n%d killed; granted again after %v", leader+1, gap.Round(time.Millisecond))
	if gap > grantAtMost {
		t.Errorf("granted again only after %v", gap)
	}
	w.await(t, 20)
	docker(t, "start", c.ids[leader])
	c.waitHealthy(t, leader)
}

// cutOff disconnects a container from its network, and asks the node from inside.
func (c *containers) cutOff(t *testing.T, w *counters, leader bool) {
	node := c.mustLead(t)
	if !leader {
		node = (node + 1) % 3
	}
	first, second := others(node)
	c.must(t, 0, http.MethodPut, semaphorePath("value"), `{"permits":0}`, http.StatusCreated, http.StatusOK)
	w.await(t, 20)
	docker(t, "network", "disconnect", c.name, c.ids[node])
	gap := firstGrant(t, c.client, first, second)
	t.Logf("n%d (leader: %v) cut off; granted again after %v", node+1, leader, gap.Round(time.Millisecond))
	c.must(t, first, http.MethodPut, semaphorePath("value")+"/value", fmt.Sprintf(`{"value":%d}`, 7+node), http.StatusOK)
	inside, err := c.readInside(node, semaphorePath("value"))
	if err == nil || !strings.Contains(inside, "503") {
		t.Errorf("cut off, n%d answered a linearizable read: %s", node+1, inside)
	}
	if stale, err := c.readInside(node, semaphorePath("value")+"?consistency=stale"); err != nil {
		t.Errorf("cut off, n%d didn't answer a stale read: %s", node+1, stale)
	}
	w.await(t, 20)
	docker(t, "network", "connect", "--alias", fmt.Sprintf("n%d", node+1), c.name, c.ids[node])
	start := time.Now()
	c.waitHealthy(t, node)
	t.Logf("n%d healthy again %v after its network was back", node+1, time.Since(start).Round(time.Millisecond))
	if s := c.must(t, node, http.MethodGet, semaphorePath("value"), "", http.StatusOK); s.Available != int64(7+node) {
		t.Errorf("n%d shows %d, not what was set while it was away", node+1, s.Available)
	}
}

// readInside asks a node from inside its container. There is no shell and no curl, so it runs the program itself.
func (c *containers) readInside(node int, path string) (string, error) {
	command := exec.Command("docker", "exec", c.ids[node], "/signalbox", "healthcheck", "--timeout", "15s", "--url", "http://127.0.0.1:8701"+path)
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

//go:build compose && linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkClosed checks that a node refuses all requests without a token or without TLS, except probes.
func checkClosed(t *testing.T, dir, base string) {
	t.Helper()
	stranger := &client{bases: []string{base}, http: &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(t, dir)}}}
	stranger.must(t, 0, http.MethodPut, semaphorePath("mine"), `{"permits":1}`, http.StatusUnauthorized)
	stranger.must(t, 0, http.MethodGet, "/v1/semaphores", "", http.StatusUnauthorized)
	stranger.must(t, 0, http.MethodGet, "/livez", "", http.StatusOK)
	response, err := http.Get(strings.Replace(base, "https://", "http://", 1) + "/livez")
	must(t, err)
	if must(t, response.Body.Close()); response.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %s", response.Status)
	}
}

// stepByStep is the page with the commands to a cluster with TLS and tokens.
const stepByStep = "docs/install.md"

// TestComposeSecure starts the open cluster, and secures it with the commands of the page. The state stays, and requests
// without credentials are refused. scripts/compose-test.sh runs the test.
func TestComposeSecure(t *testing.T) {
	compose := strings.Fields(os.Getenv("COMPOSE"))
	if len(compose) == 0 {
		t.Fatal("run it by scripts/compose-test.sh")
	}
	up := exec.Command(compose[0], append(compose[1:], "-f", "../../docker-compose.yml", "up", "--detach", "--no-build")...)
	if output, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	c := findContainers(t)
	for node := range c.ids {
		c.waitHealthy(t, node)
	}
	c.must(t, 0, http.MethodPut, semaphorePath("kept"), `{"permits":7}`, http.StatusCreated)

	script := tour(t, stepByStep, "## Containers", "## The commands")
	shown := paste(t, "../..", strings.ReplaceAll(script, "docker-compose ", os.Getenv("COMPOSE")+" "), c.client)
	for _, fetched := range []string{"ca.pem", "admin.token"} {
		defer os.Remove("../../" + fetched)
	}
	if !strings.Contains(shown, `"name":"kept","permits":7`) {
		t.Errorf("the page's commands don't show the semaphore:\n%s", shown)
	}
	c = findContainers(t) // other ones
	for node, base := range c.bases {
		c.bases[node] = strings.Replace(base, "http://", "https://", 1)
	}
	c.client = admin(t, "../..", "../../admin.token", c.bases...)
	for node := range c.ids {
		c.waitHealthy(t, node)
		checkClosed(t, "../..", c.bases[node])
	}
	c.everyNode(t)
	c.peers(t)
	logs, err := exec.Command(compose[0], append(compose[1:], "-f", "../../docker-compose.yml", "-f", "../../docker-compose.secure.yml", "logs", "tokens")...).CombinedOutput()
	must(t, err)
	if strings.Count(string(logs), ":/secrets/ca.pem") != 1 || strings.Count(string(logs), ":/secrets/admin.token") != 1 {
		t.Errorf("the first start doesn't say how to get the files:\n%s", logs)
	}
	if token, err := os.ReadFile("../../admin.token"); err != nil || strings.Contains(string(logs), strings.TrimSpace(string(token))) {
		t.Errorf("the log has the token (%v)", err)
	}
}

// machines is three containers that stand for three machines: they share no network with all three in it, and each has
// separate files.
type machines struct {
	*testing.T
	root  string // of their file systems, each in a folder with its host's name
	image string
	name  string // of containers and networks
}

// host returns the name of a machine.
func host(node int) string { return fmt.Sprintf("n%d.example", node+1) }

// shell runs a script. The programs in a folder take precedence over others of the same name.
func (m *machines) shell(script string, programs string, variables ...string) {
	m.Helper()
	command := exec.Command("sh", "-ec", script)
	command.Dir = m.root
	command.Env = append(append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "ROOT="+m.root), variables...)
	if output, err := command.CombinedOutput(); err != nil {
		m.Fatalf("%s: %v: %s", script, err, output)
	}
}

// program writes a shell script with this name.
func (m *machines) program(folder, name, script string) {
	m.Helper()
	must(m.T, os.MkdirAll(folder, 0o700))
	must(m.T, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\nset -e\n"+script), 0o700))
}

// copying is a script in place of scp. It copies to the folder of a machine.
const copying = `for to; do :; done
into="$ROOT/${to%%:*}${to#*:}"
mkdir -p "$into"
for file; do [ "$file" = "$to" ] || cp "$file" "$into"; done
`

// serving is a script in place of signalbox. It makes the container of a machine.
const serving = `mkdir -p "$ROOT/$HOST/var/lib/signalbox"
exec docker create --name "$NAME-$HOST" --hostname "$HOST" --user "$(id -u)" --network "$NAME-$FIRST" --network-alias "$HOST" \
  --workdir /etc/signalbox --volume "$ROOT/$HOST/etc/signalbox:/etc/signalbox:ro" --volume "$ROOT/$HOST/var/lib/signalbox:/var/lib/signalbox" \
  --publish "127.0.0.1:$PORT:8701" "$IMAGE" "$@"
`

// TestThreeMachines runs the page's commands for three machines on three containers. No network has all three of them,
// only each pair has one. They form a cluster that accepts only the admin, and that works without one of them.
func TestThreeMachines(t *testing.T) {
	m := &machines{T: t, root: t.TempDir(), image: os.Getenv("SIGNALBOX_IMAGE"), name: os.Getenv("COMPOSE_PROJECT_NAME")}
	if m.image == "" || m.name == "" {
		t.Fatal("run it by scripts/compose-test.sh")
	}
	text, err := os.ReadFile("../../" + stepByStep)
	must(t, err)
	if strings.Count(string(text), "\n## Three machines\n") != 1 {
		t.Fatalf("%s has no part for three machines", stepByStep)
	}
	once := tour(t, stepByStep, "## Three machines", "Give each machine its files")
	files := tour(t, stepByStep, "Give each machine its files", "and start the node there")
	start := tour(t, stepByStep, "and start the node there", "The last command")
	operator, machine := filepath.Join(m.root, "operator"), filepath.Join(m.root, "machine")
	must(t, os.MkdirAll(operator, 0o700))
	if output, err := exec.Command("go", "build", "-o", filepath.Join(operator, "signalbox"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	m.program(operator, "scp", copying)
	m.program(machine, "signalbox", serving)
	m.shell(once, operator)
	t.Cleanup(m.remove)
	for _, pair := range []string{"n1-n2", "n2-n3", "n1-n3"} {
		docker(t, "network", "create", m.name+"-"+pair)
	}
	atNode := func(script string, node int) string {
		id := fmt.Sprintf("n%d", node+1)
		for _, place := range []string{"certs/%s/", "--node-id %s", "%s.example:/etc"} {
			script = strings.ReplaceAll(script, fmt.Sprintf(place, "n1"), fmt.Sprintf(place, id))
		}
		return script
	}
	var bases []string
	for node, pairs := range [][2]string{{"n1-n2", "n1-n3"}, {"n1-n2", "n2-n3"}, {"n2-n3", "n1-n3"}} {
		port := freePorts(t, 0)
		m.shell(atNode(files, node), operator)
		m.shell("cd() { :; }\n"+atNode(start, node), machine, "HOST="+host(node), "NAME="+m.name, "IMAGE="+m.image, "FIRST="+pairs[0], fmt.Sprintf("PORT=%d", port))
		docker(t, "network", "connect", "--alias", host(node), m.name+"-"+pairs[1], m.container(node))
		bases = append(bases, fmt.Sprintf("https://localhost:%d", port))
	}
	for node := range bases {
		docker(t, "start", m.container(node))
	}
	m.use(bases)
}

func (m *machines) container(node int) string { return m.name + "-" + host(node) }

// use checks the cluster of the machines.
func (m *machines) use(bases []string) {
	m.Helper()
	certs := filepath.Join(m.root, "certs")
	c := admin(m.T, certs, filepath.Join(certs, "admin.token"), bases...)
	for node := range bases {
		eventually(m.T, 60*time.Second, func() error {
			r, err := c.ask(m.T.Context(), node, http.MethodGet, "/readyz?verbose", "")
			if err == nil && r.status != http.StatusOK {
				err = fmt.Errorf("n%d: %s", node+1, r.Detail)
			}
			return err
		})
		checkClosed(m.T, certs, bases[node])
	}
	c.must(m.T, 0, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusCreated)
	first := c.must(m.T, 1, http.MethodPost, semaphorePath("db")+"/leases", `{"ttl":"5m"}`, http.StatusCreated)
	docker(m.T, "kill", m.container(0))
	c.must(m.T, 2, http.MethodDelete, "/v1/sessions/"+first.Session, "", http.StatusNoContent)
	if second := c.must(m.T, 1, http.MethodPost, semaphorePath("db")+"/leases", `{"ttl":"5m"}`, http.StatusCreated); second.Token <= first.Token {
		m.Errorf("token %d after %d", second.Token, first.Token)
	}
}

// remove removes the machines. If the test failed, it prints their logs.
func (m *machines) remove() {
	for node := range 3 {
		if m.Failed() {
			logs, _ := exec.Command("docker", "logs", "--tail", "40", m.container(node)).CombinedOutput()
			m.Logf("%s:\n%s", host(node), logs)
		}
		_ = exec.Command("docker", "rm", "--force", "--volumes", m.container(node)).Run()
	}
	for _, pair := range []string{"n1-n2", "n2-n3", "n1-n3"} {
		_ = exec.Command("docker", "network", "rm", m.name+"-"+pair).Run()
	}
}

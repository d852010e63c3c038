//go:build processes && conformance && linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/internal/certs"
)

// The cases, and the client in Python.
const (
	conformanceCases = "../../client/conformance/cases.json"
	pythonClient     = "../../client/python"
)

// conformanceSetup is what the clients of a run get. It is the same for each language.
type conformanceSetup struct {
	Cases     string            `json:"cases"`
	Prefix    string            `json:"prefix"` // of all names of semaphores
	Addresses map[string]string `json:"addresses"`
	Tokens    map[string]string `json:"tokens"`
	TokenFile string            `json:"token_file"`
	CA        string            `json:"ca"`
}

// conformanceCase is one member of the list; client/conformance/README.md has the steps.
type conformanceCase struct {
	Name   string                     `json:"name"`
	Actors map[string]conformingActor `json:"actors"`
	Steps  []conformanceStep          `json:"steps"`
}

// outcomes are the results of each step, by the name of the case.
type outcomes map[string][]map[string]any

// TestConformance runs the list of cases with the clients in Go and in Python. They call three real processes with HTTPS
// and tokens; in the middle of the cases that say so, the leader is restarted. The results of both clients must be the
// expected results.
func TestConformance(t *testing.T) {
	text, err := os.ReadFile(conformanceCases)
	must(t, err)
	var list struct {
		Cases []conformanceCase `json:"cases"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&list))
	if len(list.Cases) < 110 {
		t.Errorf("there are %d cases, fewer than 110", len(list.Cases))
	}
	c := startConforming(t)
	began := time.Now()
	inGo := c.runGo(t, list.Cases)
	c.awaitAll()
	t.Logf("Go: %d cases in %v", len(inGo), time.Since(began).Round(time.Millisecond))
	held := holdTo(t, "Go", list.Cases, inGo)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("NOT CHECKED: the client in Python: python3 is not installed")
		return
	}
	began = time.Now()
	inPython := c.runPython(t, python)
	c.awaitAll()
	t.Logf("Python: %d cases in %v", len(inPython), time.Since(began).Round(time.Millisecond))
	held += holdTo(t, "Python", list.Cases, inPython)
	for _, listed := range list.Cases {
		if a, b := comparable(inGo[listed.Name]), comparable(inPython[listed.Name]); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the clients differ:\nGo     %v\nPython %v", listed.Name, a, b)
		}
	}
	t.Logf("%d results as expected, of %d cases × 2 clients", held, len(list.Cases))
}

// holdTo compares results with the expected results, and returns the number of compared members.
func holdTo(t *testing.T, client string, cases []conformanceCase, results outcomes) (held int) {
	t.Helper()
	for _, listed := range cases {
		got := results[listed.Name]
		if len(got) != len(listed.Steps) {
			t.Errorf("%s: %s: %d results of %d steps", client, listed.Name, len(got), len(listed.Steps))
			continue
		}
		tokens := map[string]float64{}
		for i, step := range listed.Steps {
			label := step.As
			if step.Do == "join" {
				label = step.Of
			}
			if token, ok := got[i]["token"].(float64); ok {
				tokens[label] = token
			}
			fail := func(words string, values ...any) {
				t.Errorf("%s: %s, step %d (%s): %s; result %v", client, listed.Name, i+1, step.Do, fmt.Sprintf(words, values...), got[i])
			}
			if code, failed := got[i]["error"]; failed && step.Expect["error"] == nil {
				fail("error %v", code)
			}
			for member, want := range step.Expect {
				held++
				if earlier, above := strings.CutPrefix(fmt.Sprint(want), ">"); above {
					if token, ok := got[i][member].(float64); !ok || token <= tokens[earlier] {
						fail("%s is not above that of %s, %v", member, earlier, tokens[earlier])
					}
				} else if !reflect.DeepEqual(got[i][member], want) {
					fail("%s is not %v", member, want)
				}
			}
		}
	}
	return held
}

// comparable returns results without the tokens, which differ in each run.
func comparable(results []map[string]any) (plain []map[string]any) {
	for _, r := range results {
		r = maps.Clone(r)
		delete(r, "token")
		plain = append(plain, r)
	}
	return plain
}

// conforming is the cluster, and the addresses with faults.
type conforming struct {
	*processes
	setup conformanceSetup
	trust *x509.CertPool
	tls   *tls.Config // of a server with a certificate of n1

	mu   sync.Mutex
	line net.Listener // of "cut"
	cut  []net.Conn
}

func startConforming(t *testing.T) *conforming {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority, err := certs.MakeAuthority(dir, false)
	must(t, err)
	pair, err := certs.MakeNode(dir, "n1", []string{"127.0.0.1"}, false)
	must(t, err)
	setup := conformanceSetup{CA: authority.Cert, TokenFile: file("admin.token"), Addresses: map[string]string{}, Tokens: map[string]string{"wrong": "tok-wrong-3Jq8"}}
	for name, flags := range map[string][]string{"admin": {"--scope", "admin"}, "use": {"--scope", "use"}, "other": {"--scope", "use"},
		"read": {"--scope", "read"}, "narrow": {"--scope", "use", "--prefix", "elsewhere/"}} {
		mustCommand(t, append([]string{"token", "new", name, "--token-file", file(name + ".token"), "--append", file("tokens.toml")}, flags...)...)
		secret, err := os.ReadFile(file(name + ".token"))
		must(t, err)
		setup.Tokens[name] = strings.TrimSpace(string(secret))
	}
	setup.Cases, err = filepath.Abs(conformanceCases)
	must(t, err)
	certificate, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	must(t, err)
	bundle, err := os.ReadFile(authority.Cert)
	must(t, err)
	c := &conforming{setup: setup, trust: x509.NewCertPool(), tls: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	c.trust.AppendCertsFromPEM(bundle)
	c.processes = &processes{t: t, program: testProgram, dir: t.TempDir(), base: freePorts(t, 0, 1, 2, 10, 11, 12),
		extra: []string{"--tls-cert", pair.Cert, "--tls-key", pair.Key, "--tokens", file("tokens.toml")}}
	for node := range c.running {
		c.setup.Addresses[fmt.Sprintf("n%d", node+1)] = strings.Replace(c.url(node), "http:", "https:", 1)
	}
	c.processes.client = newClient(c.address("n1"), c.address("n2"), c.address("n3"))
	keys := credentials.Config{CA: setup.CA, Token: setup.Tokens["admin"]}
	c.processes.client.http.Transport, err = credentials.New(keys, c.bases(t), http.DefaultTransport.(*http.Transport).Clone())
	must(t, err)
	for node := range c.running {
		c.start(node)
	}
	c.awaitAll()
	c.faults(t)
	return c
}

func (c *conforming) address(name string) string { return c.setup.Addresses[name] }

func (c *conforming) bases(t *testing.T) (list []*url.URL) {
	for _, base := range c.processes.client.bases {
		at, err := url.Parse(base)
		must(t, err)
		list = append(list, at)
	}
	return list
}

func (c *conforming) awaitAll() {
	c.t.Helper()
	for node := range c.running {
		c.waitReady(node)
	}
}

// restart kills the leader and starts it again. It returns while the other nodes have no leader.
func (c *conforming) restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := c.ask(ctx, 0, http.MethodGet, "/v1/cluster", "")
	if err != nil || r.Leader == nil {
		return fmt.Errorf("no leader: %v", err)
	}
	node := slices.Index([]string{"n1", "n2", "n3"}, *r.Leader)
	c.running[node].kill()
	c.start(node)
	return nil
}

// faults starts the addresses with faults: "dead", "silent", "draining", "lossy" and "cut".
func (c *conforming) faults(t *testing.T) {
	t.Helper()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c.setup.Addresses["dead"] = "https://" + dead.Addr().String()
	dead.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects, and no reply comes
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	c.setup.Addresses["silent"] = "https://" + silent.Addr().String()
	c.serve(t, "draining", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"status":503,"code":"draining","detail":"The node is stopping."}`)
	}))
	base, err := url.Parse(c.address("n2"))
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(base)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.trust}}
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	var seen sync.Map
	c.serve(t, "lossy", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key") + r.Method + r.URL.Path
		if _, again := seen.LoadOrStore(key, true); again || r.Method == http.MethodGet {
			proxy.ServeHTTP(w, r)
			return
		}
		if r.URL.Query().Has("wait") { // it waits on, and its client gets no reply
			ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
			defer cancel()
			r = r.WithContext(ctx)
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // the first reply of each request is lost
	}))
}

func (c *conforming) serve(t *testing.T, name string, handler http.Handler) {
	s := httptest.NewUnstartedServer(handler)
	s.TLS, s.Config.ErrorLog = c.tls.Clone(), log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	c.setup.Addresses[name] = s.URL
}

// connect makes the address "cut": a line to n1, until cutOff.
func (c *conforming) connect(t *testing.T) {
	t.Helper()
	line, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(c.cutOff)
	c.line, c.cut = line, nil
	c.setup.Addresses["cut"] = "https://" + line.Addr().String()
	go func() {
		for {
			near, err := line.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(c.address("n1"), "https://"))
			if err != nil {
				near.Close()
				continue
			}
			c.mu.Lock()
			c.cut = append(c.cut, near, far)
			c.mu.Unlock()
			go func() { _, _ = io.Copy(near, far) }()
			go func() { _, _ = io.Copy(far, near) }()
		}
	}()
}

// cutOff ends the line.
func (c *conforming) cutOff() {
	c.line.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.cut {
		end.Close()
	}
}

// runPython runs the list with the client in Python, and restarts nodes when its runner asks for it.
func (c *conforming) runPython(t *testing.T, python string) outcomes {
	t.Helper()
	c.connect(t)
	c.setup.Prefix = "python"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, python, "tests/conformance.py")
	command.Dir, command.Env = pythonClient, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	in, err := command.StdinPipe()
	must(t, err)
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	must(t, json.NewEncoder(in).Encode(c.setup))
	var results outcomes
	for lines := bufio.NewReader(out); ; {
		var reply struct {
			Ask     string   `json:"ask"`
			Results outcomes `json:"results"`
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		must(t, json.Unmarshal(line, &reply))
		switch reply.Ask {
		case "restart":
			must(t, c.restart())
		case "cut":
			c.cutOff()
		default:
			results = reply.Results
		}
		_, _ = io.WriteString(in, "\n")
	}
	err = command.Wait()
	if err != nil || results == nil || stderr.Len() > 100_000 {
		t.Fatalf("the runner in Python: %v\n%s", err, stderr.String())
	}
	return results
}

package client_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/clienttest"
)

// goIn runs the go command in a folder, without a network and with changes of the environment, and returns its output.
func goIn(t *testing.T, dir string, environment []string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), append(environment, "GOPROXY=off", "GOWORK=off", "PWD="+dir)...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// TestUsersNeedOneModule makes a program that uses the client, and a test of it. The client brings no module along.
func TestUsersNeedOneModule(t *testing.T) {
	folder, err := filepath.Abs("../../client")
	must(t, err)
	goIn(t, folder, nil, "mod", "tidy", "-diff") // fails if go.mod lacks a module

	const using = `
	"github.com/signalbox/signalbox/client"
	_ "github.com/signalbox/signalbox/client/batch"
	_ "github.com/signalbox/signalbox/client/cells"
	_ "github.com/signalbox/signalbox/client/credentials"
	_ "github.com/signalbox/signalbox/client/items"
	_ "github.com/signalbox/signalbox/client/operator"
)

`
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.org/job\n\ngo 1.25.0\n\nreplace github.com/signalbox/signalbox/client => " + folder + "\n",
		"main.go":      "package main\n\nimport (" + using + "func main() { _, _ = client.New(client.Config{}) }\n",
		"main_test.go": "package main\n\nimport (\n\t\"testing\"\n" + using + "func TestLease(*testing.T) { _ = client.Lease{} }\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	environment := []string{"GOFLAGS=-mod=mod -trimpath"}
	goIn(t, dir, environment, "mod", "tidy")
	goIn(t, dir, environment, "vet", ".")
	goIn(t, dir, environment, "build", "-o", os.DevNull, ".")
	listed := strings.Fields(goIn(t, dir, environment, "list", "-m", "-f", "{{.Path}}", "all"))
	if got := strings.Join(listed, " "); got != "example.org/job github.com/signalbox/signalbox/client" {
		t.Errorf("the program is made of the modules %s", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.sum")); !os.IsNotExist(err) {
		t.Errorf("go.sum: %v", err)
	}
}

// TestExamplesOfTheClient runs the client's examples, which are in its module and need a node.
func TestExamplesOfTheClient(t *testing.T) {
	server := httptest.NewServer(clienttest.Start(t).Handler())
	t.Cleanup(server.Close)
	output := goIn(t, ".", []string{"SIGNALBOX_TEST_EXAMPLES=" + server.URL}, "test", "-count=1", "-vet=off", "-v", "-run=^Example", "github.com/signalbox/signalbox/client")
	text, err := os.ReadFile("../../client/example_test.go")
	must(t, err)
	functions := regexp.MustCompile(`(?m)^func (Example\w*)\(\)`).FindAllSubmatch(text, -1)
	for _, f := range functions {
		if !strings.Contains(output, "--- PASS: "+string(f[1])+" ") {
			t.Errorf("%s did not run:\n%s", f[1], output)
		}
	}
	if len(functions) < 8 {
		t.Errorf("only %d examples were found", len(functions))
	}
}

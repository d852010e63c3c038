package client_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
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

// TestExamplesOfTheClient runs the client's examples, which are in its module and need a node.
func TestExamplesOfTheClient(t *testing.T) {
	server := httptest.NewServer(clienttest.Start(t).Handler())
	t.Cleanup(server.Close)
	output := goIn(t, ".", []string{"SIGNALBOX_ADDR=" + server.URL}, "test", "-count=1", "-vet=off", "-v", "-run=^Example", "github.com/signalbox/signalbox/client")
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

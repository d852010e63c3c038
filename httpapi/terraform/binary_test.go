package terraform_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// configured is a Terraform configuration in a separate folder. Its resources need no provider and no network.
type configured struct {
	*testing.T
	binary, folder string
}

func (c *configured) run(arguments ...string) (output string, err error) {
	command := exec.CommandContext(c.Context(), c.binary, append([]string{"-chdir=" + c.folder}, arguments...)...)
	command.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE="+os.DevNull, "HOME="+c.folder)
	combined, err := command.CombinedOutput()
	return string(combined), err
}

func (c *configured) must(want string, arguments ...string) (output string) {
	c.Helper()
	output, err := c.run(arguments...)
	if err != nil || !strings.Contains(output, want) {
		c.Fatalf("%q: %v: %.2000s", arguments, err, output)
	}
	return output
}

// size returns an argument with which the state has at least this many bytes. The state has the text of this size twice,
// in the input and in the output, so half of it is enough.
func size(bytes int) string { return fmt.Sprintf("-var=size=%d", bytes/200) }

// TestRealBinary runs Terraform or OpenTofu against a node, if one of them is in PATH. It covers states of several
// sizes, two applies at once, a lock that was left behind, a state that is too large, and the delete.
func TestRealBinary(t *testing.T) {
	binary, err := exec.LookPath("terraform")
	if err != nil {
		if binary, err = exec.LookPath("tofu"); err != nil {
			t.Skip("neither terraform nor tofu is in PATH")
		}
	}
	s, _ := apitest.OnAPI(t, withTerraform)
	server := httptest.NewServer(s.Handler)
	defer server.Close()
	for i, methods := range []string{"", "lock_method = \"POST\"\nunlock_method = \"DELETE\"\nupdate_method = \"PUT\"\n"} {
		address := fmt.Sprintf("/terraform/team/prod-%d", i)
		c := &configured{t, binary, t.TempDir()}
		text := fmt.Sprintf(`terraform {
  backend "http" {
    address = %[1]q
    lock_address = %[1]q
    unlock_address = %[1]q
    retry_max = 0
    %[2]s
  }
}
variable "size" {}
resource "terraform_data" "x" {
  input = format("%%0${var.size * 100}d", 0)
}
`, server.URL+address, methods)
		if err := os.WriteFile(filepath.Join(c.folder, "main.tf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.must("successfully initialized", "init", "-no-color")
		for _, n := range []int{1 << 10, 300 << 10, 1<<20 + 1} {
			c.must("Apply complete", "apply", "-auto-approve", size(n))
			if state := c.must(`"serial"`, "state", "pull"); len(state) < n {
				t.Errorf("a state of %d bytes, want %d", len(state), n)
			}
		}
		var applies sync.WaitGroup
		for n := range 2 {
			applies.Go(func() {
				if output, err := c.run("apply", "-auto-approve", "-lock-timeout=1m", size(1000*(n+2))); err != nil {
					t.Errorf("two at once: %v: %s", err, output)
				}
			})
		}
		applies.Wait()
		s.Is(s.Ask("LOCK "+address, lockOf("left")), done)
		if output, err := c.run("plan", size(2000)); err == nil || !strings.Contains(output, "already locked") {
			t.Errorf("under the lock of another: %v: %s", err, output)
		}
		c.must("successfully unlocked", "force-unlock", "-force", "left")
		c.must("", "plan", size(2000))
		before := s.Ask("GET "+address, "").String()
		if output, err := c.run("apply", "-auto-approve", size(9<<20)); err == nil || !strings.Contains(output, "413") {
			t.Errorf("a state that is too large: %v: %.1000s", err, output)
		}
		if got := s.Ask("GET "+address, "").String(); got != before {
			t.Errorf("a state that is too large changed it: %.300s", got)
		}
		c.must("Destroy complete", "destroy", "-auto-approve", size(1000))
		s.Is(s.Ask("LOCK "+address, lockOf("free")), done)
		s.Is(s.Ask("UNLOCK "+address, lockOf("free")), done)
	}
}

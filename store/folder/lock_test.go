package folder

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/storetest"
)

// heldFolder names the folder that a child process holds.
const heldFolder = "SIGNALBOX_STORE_TEST_HELD_FOLDER"

// TestFolderIsHeldByAnotherProcess starts a real second process that opens the
// folder, and kills it: while it lives the folder is refused at once, and after
// that it is free, with what the other had stored.
func TestFolderIsHeldByAnotherProcess(t *testing.T) {
	if folder := os.Getenv(heldFolder); folder != "" {
		openFolder(t, folder)
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}
	folder := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestFolderIsHeldByAnotherProcess$", "-test.v")
	child.Env = append(os.Environ(), heldFolder+"="+folder)
	input, err := child.StdinPipe()
	storetest.Must(t, err)
	output, err := child.StdoutPipe()
	storetest.Must(t, err)
	storetest.Must(t, child.Start())
	defer func() { _ = input.Close() }() // ends the child if the test fails early
	lines := bufio.NewScanner(output)
	for lines.Scan() && !strings.Contains(lines.Text(), "held") {
	}

	begun := time.Now()
	_, err = Open(configOf(folder))
	storetest.WantError(t, err, ErrLocked, folder, fmt.Sprint("process ", child.Process.Pid))
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("that took %v", took)
	}
	storetest.Must(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	openFolder(t, folder)
}

// TestHolderThatIsNotKnown: a lock file without a text still locks.
func TestHolderThatIsNotKnown(t *testing.T) {
	folder := t.TempDir()
	s := openFolder(t, folder)
	storetest.Must(t, s.lock.Truncate(0))
	_, err := Open(configOf(folder))
	storetest.WantError(t, err, ErrLocked, folder, "another process")
}

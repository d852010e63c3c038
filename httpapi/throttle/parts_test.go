package throttle

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// peers lists more than a reply that is made in one piece.
func TestThrottlePeersInParts(t *testing.T) {
	a, _, address := apitest.Serve(t, exactly)
	const most = 30_000
	var commands []fsm.Command
	var want strings.Builder
	for i := range most {
		commands = append(commands, fsm.OpenSession{Session: uint64(i + 1), TTLMS: 3_600_000})
		fmt.Fprintf(&want, `,{"id":%d}`, i+1)
	}
	a.Begin(commands...)
	response, err := http.Get("http://" + address + "/peers/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || string(got) != "["+want.String()[1:]+"]" || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d bytes, %v, %v", len(got), err, response.Header)
	}
	if response.ContentLength >= 0 {
		t.Error("a list of many peers is made in one piece")
	}
	if head, err := http.Head("http://" + address + "/peers/"); err != nil || head.StatusCode != 200 {
		t.Errorf("HEAD: %v %v", head, err)
	}
}

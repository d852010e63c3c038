package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// branchPage is the kind of a branch, in the head of each page.
const branchPage = 0x01

// stockFile names the file that a child process opens with raft-boltdb alone.
const stockFile = "SIGNALBOX_STORE_TEST_STOCK_FILE"

// TestStockBoltEndsTheProcess shows why package boltcheck exists. A child opens a
// damaged file with raft-boltdb alone, and tries to recover; it can't.
func TestStockBoltEndsTheProcess(t *testing.T) {
	if path := os.Getenv(stockFile); path != "" {
		defer func() { fmt.Println("recovered:", recover() != nil) }()
		bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: damage.BoltOptions()})
		fmt.Println("opened:", bolt != nil, err)
		return
	}
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 1000, 1)
	closeStore(t, s)
	path := filepath.Join(folder, raftFile)
	content, err := os.ReadFile(path)
	storetest.Must(t, err)
	page := os.Getpagesize()
	for at := 2 * page; at < len(content); at += page {
		if binary.NativeEndian.Uint16(content[at+8:]) == branchPage {
			clear(content[at : at+page])
		}
	}
	storetest.Must(t, os.WriteFile(path, content, 0o600))
	child := exec.Command(os.Args[0], "-test.run=^TestStockBoltEndsTheProcess$", "-test.v")
	child.Env = append(os.Environ(), stockFile+"="+path)
	output, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic:") || strings.Contains(string(output), "recovered:") {
		t.Errorf("the child went on, error %v: perhaps bbolt has changed, and boltcheck can go\n%s", err, output)
	}
	_, err = Open(options(folder))
	storetest.WantError(t, err, damage.ErrDamaged, folder+"/"+raftFile, "page")
}

// TestStockBoltBelievesFlippedBits shows why entries have checksums.
func TestStockBoltBelievesFlippedBits(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 10, 1)
	closeStore(t, s)
	path := filepath.Join(folder, raftFile)
	content, err := os.ReadFile(path)
	storetest.Must(t, err)
	for at := bytes.Index(content, []byte("command 7 of")); at >= 0; at = bytes.Index(content, []byte("command 7 of")) {
		content[at+8] ^= 1
	}
	storetest.Must(t, os.WriteFile(path, content, 0o600))
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: damage.BoltOptions()})
	storetest.Must(t, err)
	var got raft.Log
	if err := errors.Join(bolt.GetLog(7, &got), bolt.Close()); err != nil || !bytes.HasPrefix(got.Data, []byte("command 6 of")) {
		t.Errorf("raft-boltdb alone returned %q, error %v", got.Data, err)
	}
	_, err = Open(options(folder))
	storetest.WantError(t, err, damage.ErrDamaged, raftFile+" at index 7", "checksum")
}

package store_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store"
)

// A folder is made, used and closed. Opened again, it has the same log, and no other
// process can open it meanwhile.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "signalbox-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	options := store.Options{Folder: filepath.Join(dir, "n1"), NodeID: "n1"}

	s, err := store.Open(options)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("empty:", s.Empty())
	if err := s.Logs().StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("the first entry")}); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}

	if s, err = store.Open(options); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	last, err := s.Logs().LastIndex()
	fmt.Println("last index:", last, err)
	_, err = store.Open(options)
	fmt.Println("opened twice:", err == nil)
	// Output:
	// empty: true
	// last index: 1 <nil>
	// opened twice: false
}

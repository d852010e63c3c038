package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

var updateFolder = flag.Bool("update", false, "write the data folder of this version anew")

// TestReleasedFolders: a node opens the data folder of each release, with everything that a node of that release had
// stored in it. The script beside a folder checks this content. Before a release this command writes its folder, which
// then stays unchanged:
//
//	go test ./cmd/signalbox -run TestReleasedFolders -update
//
// New members of replies change the output of a script (-rewrite).
func TestReleasedFolders(t *testing.T) {
	if *updateFolder {
		writeFolder(t, filepath.Join("testdata", "released", "v"+release+".zip"))
	}
	folders, err := filepath.Glob(filepath.Join("testdata", "released", "v*.zip"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no folders: %v", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			archive, err := zip.OpenReader(folder)
			must(t, err)
			defer func() { _ = archive.Close() }()
			data := filepath.Join(t.TempDir(), "data")
			must(t, os.CopyFS(data, archive))
			s, stop := startStage(t, "--data", data, "--min-free", "1MiB")
			datadriven.RunTest(t, strings.TrimSuffix(folder, ".zip")+".txt", func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "batch" {
					return s.hidden(s.batch(t, `{"operations":[`+d.Input+`]}`))
				}
				return s.perform(t, d.Input)
			})
			stop()
		})
	}
}

// writeFolder makes a data folder, with a log and the snapshot that a node takes when it ends.
func writeFolder(t *testing.T, archive string) {
	data := filepath.Join(t.TempDir(), "data")
	s, stop := startStage(t, "--data", data, "--min-free", "1MiB")
	fill, err := os.ReadFile(filepath.Join("testdata", "released", "fill.json"))
	must(t, err)
	if results := s.batch(t, string(fill)); strings.Contains(results, `{"status":4`) {
		t.Fatal(results)
	}
	eventually(t, 20*time.Second, func() error {
		if command(t, []string{"lost", "rig", "-o", "name", "--addr", s.addresses}).stdout == "" {
			return errors.New("the lease of rig has not ended")
		}
		return nil
	})
	stop()
	var packed bytes.Buffer
	files := zip.NewWriter(&packed)
	must(t, errors.Join(files.AddFS(os.DirFS(data)), files.Close(), os.WriteFile(archive, packed.Bytes(), 0o644)))
}

// batch sends operations in one request, and returns its results, one in a line.
func (s *verbStage) batch(t *testing.T, operations string) string {
	t.Helper()
	response, err := (&http.Client{Timeout: 20 * time.Second}).Post(s.addresses+"/v1/batch", "application/json", strings.NewReader(operations))
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return strings.ReplaceAll(string(text), `},{"status":`, "},\n"+`{"status":`)
}

package declare

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
)

// Declaration is the file that one node was started with, and whether it is in force. It is safe for concurrent
// use.
type Declaration struct {
	path    string
	onRead  func(*File)
	file    atomic.Pointer[File]
	inPlace atomic.Bool // declared at least once
}

// Open reads and checks a file, before anything is started. onRead is called with each readable file, this one
// included, before the file is declared. The error is one line that names the file.
func Open(path string, onRead func(*File)) (*Declaration, error) {
	d := &Declaration{path: path, onRead: onRead}
	return d, d.read()
}

// read reads the file again; on an error the content read before stays.
func (d *Declaration) read() error {
	file, err := Read(d.path)
	if err != nil {
		return err
	}
	d.file.Store(file)
	d.onRead(file)
	return nil
}

// Names returns the names of the declared semaphores, each once. It does not block.
func (d *Declaration) Names() []string {
	file := d.file.Load()
	names := make([]string, len(file.Semaphores))
	for i := range file.Semaphores {
		names[i] = file.Semaphores[i].Name
	}
	return names
}

// Check reports, for the node's readiness, whether the declared semaphores were ever in place. It does not block.
func (d *Declaration) Check() cluster.Check {
	if d.inPlace.Load() {
		return cluster.Check{Name: "declared", OK: true, Detail: "the declared semaphores are in place"}
	}
	return cluster.Check{Name: "declared", Detail: "the semaphores of " + d.path + " are not in place yet"}
}

// Keep declares the file, and reads and declares it again at each signal on reload. If the file can't be read
// then, Keep logs that, and the content read before stays. It blocks until ctx ends.
func (d *Declaration) Keep(ctx context.Context, node Node, reload <-chan os.Signal, log hclog.Logger) {
	log = log.Named("declare")
	d.declare(ctx, node, log)
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		}
		if err := d.read(); err != nil {
			log.Error("the file can't be declared; what it said before stays", "error", err)
			continue
		}
		d.declare(ctx, node, log)
	}
}

func (d *Declaration) declare(ctx context.Context, node Node, log hclog.Logger) {
	file := d.file.Load()
	for _, warning := range file.Warnings {
		log.Warn("declared otherwise than written", "file", d.path, "warning", warning)
	}
	changed, err := Declare(ctx, node, file)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Error("not all semaphores are declared", "file", d.path, "error", err)
	default:
		d.inPlace.Store(true)
		log.Info("semaphores declared", "file", d.path, "semaphores", len(file.Semaphores), "changed", changed)
	}
}

package declare

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
)

// Declaration is the file that one node was started with, and how far it is in
// force. It is safe for concurrent use.
type Declaration struct {
	// OnRead hears of each file that Keep reads well, before that is declared; nil:
	// nobody does. It must be set before Keep runs.
	OnRead func(*File)

	path    string
	file    atomic.Pointer[File]
	inPlace atomic.Bool // declared at least once
}

// Open reads and checks a file, before anything is started. The error is one line
// that names it.
func Open(path string) (*Declaration, error) {
	file, err := Read(path)
	if err != nil {
		return nil, err
	}
	d := &Declaration{path: path}
	d.file.Store(file)
	return d, nil
}

// File is what the file said when it was last read well.
func (d *Declaration) File() *File { return d.file.Load() }

// Names are those of the declared semaphores, each once. It does not block.
func (d *Declaration) Names() []string {
	file := d.file.Load()
	names := make([]string, len(file.Semaphores))
	for i := range file.Semaphores {
		names[i] = file.Semaphores[i].Name
	}
	return names
}

// Check tells, for the node's readiness, whether the declared semaphores were in
// place once. It does not block.
func (d *Declaration) Check() cluster.Check {
	if d.inPlace.Load() {
		return cluster.Check{Name: "declared", OK: true, Detail: "the declared semaphores are in place"}
	}
	return cluster.Check{Name: "declared", Detail: "the semaphores of " + d.path + " are not in place yet"}
}

// Keep declares what was read, and reads and declares again at each reload, whatever
// it is, until ctx ends; cmd gives it SIGHUP. A file that can't be read then is logged, and what
// it said before stays. It blocks until ctx ends.
func (d *Declaration) Keep(ctx context.Context, node Node, reload <-chan os.Signal, log hclog.Logger) {
	log = log.Named("declare")
	d.declare(ctx, node, log)
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		}
		file, err := Read(d.path)
		if err != nil {
			log.Error("the file can't be declared; what it said before stays", "error", err)
			continue
		}
		d.file.Store(file)
		if d.OnRead != nil {
			d.OnRead(file)
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

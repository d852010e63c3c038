package declare

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
)

// Declaration is the file with which one node was started, and whether the cluster has its semaphores. It is safe for
// concurrent use.
type Declaration struct {
	path    string
	onRead  func(*File)
	file    atomic.Pointer[File]
	inPlace atomic.Bool // all were declared at least once
	refused atomic.Bool // the cluster refuses semaphores of the file
}

// Open reads and checks a file, before anything is started. It calls onRead with the content, and so does Keep after
// each reload, before it declares the file. The error is one line that names the file.
func Open(path string, onRead func(*File)) (*Declaration, error) {
	d := &Declaration{path: path, onRead: onRead}
	return d, d.read()
}

// read reads the file again. On an error the previous content stays.
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

// Check reports, for the node's readiness, whether the declared semaphores were ever in place. A reload of which the
// cluster refuses a part keeps the node ready: else one mistake in the file would take all nodes out of service. It does
// not block.
func (d *Declaration) Check() cluster.Check {
	c := cluster.Check{Name: "declared", OK: d.inPlace.Load(), Detail: "the declared semaphores are in place"}
	switch {
	case d.refused.Load():
		c.Detail = "the cluster refuses semaphores of " + d.path + ", which the log names" // and not here, since a probe needs no token
	case !c.OK:
		c.Detail = "the semaphores of " + d.path + " are not in place yet"
	}
	return c
}

// Keep declares the file. At each signal on reload it reads the file again and declares it. If the file can't be read
// then, Keep logs the error and keeps the previous content. It blocks until ctx ends.
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
	changed, refused, err := Declare(ctx, node, file)
	for _, r := range refused {
		log.Error("a semaphore is refused, and stays as it was", "file", d.path, "semaphore", r.Semaphore, "key", r.Key, "reason", r.Reason)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Error("not all semaphores are declared", "file", d.path, "error", err)
	case len(refused) > 0:
		d.refused.Store(true)
		log.Error("the file is declared in part", "file", d.path, "semaphores", len(file.Semaphores), "changed", changed, "refused", len(refused))
	default:
		d.inPlace.Store(true)
		d.refused.Store(false)
		log.Info("semaphores declared", "file", d.path, "semaphores", len(file.Semaphores), "changed", changed)
	}
}

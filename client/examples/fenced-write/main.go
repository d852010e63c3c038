// Command fenced-write shows a write to a database under a lock. A lock alone can't
// protect the database: a writer that was paused (by its machine, its container, its
// garbage collector) may go on after its lease has ended, and write when another writer
// holds the lock. The fencing token closes that gap: each grant has a larger token, the
// writer sends its token with each write, and the database refuses a token that is smaller
// than the token in the row:
//
//	UPDATE accounts SET balance = $1, token = $2 WHERE id = $3 AND token <= $2
//
// If no row is changed, the writer has lost the lock. Here a map is the database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/signalbox/signalbox/client"
)

var errLateWriter = errors.New("a later holder of the lock has written already")

// table is a table of accounts with a token in each row.
type table struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	balance int
	token   uint64
}

// update is the statement above.
func (t *table) update(id string, balance int, token uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[id].token > token {
		return errLateWriter
	}
	t.rows[id] = row{balance, token}
	return nil
}

func main() {
	if err := run(context.Background(), &table{rows: map[string]row{}}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, accounts *table) error {
	c, err := client.New(client.Config{Addresses: addresses()})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	const lock = "fenced-write"
	if _, _, err := c.Create(ctx, lock, 1); err != nil {
		return err
	}

	first, err := c.Acquire(ctx, lock)
	if err != nil {
		return err
	}
	// The first writer is paused here. Its lease ends; Release stands for that.
	if err := first.Release(ctx); err != nil {
		return err
	}

	second, err := c.Acquire(ctx, lock)
	if err != nil {
		return err
	}
	defer second.Release(ctx)
	if err := accounts.update("alice", 50, second.Token); err != nil {
		return err
	}
	fmt.Println("the second writer has written")

	// The first writer goes on, and has not noticed its loss.
	if err := accounts.update("alice", 100, first.Token); !errors.Is(err, errLateWriter) {
		return fmt.Errorf("the first writer's update ended with %v", err)
	}
	fmt.Println("the first writer was refused")
	return nil
}

// addresses are the nodes in SIGNALBOX_ADDR, or the first one of "make run".
func addresses() []string {
	if list := os.Getenv("SIGNALBOX_ADDR"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"http://127.0.0.1:8701"}
}

// Command tenant-pool shows a pool of workers that many tenants share. It limits the jobs at a time over all machines,
// and the jobs at a time of each tenant; a free place goes to the tenant that uses least. A tenant with a thousand jobs
// therefore delays no other tenant by more than the jobs that already run.
//
// Workers may be on any machine; here they are goroutines of one process, and each holds a permit of its job's tenant
// while it works. A tenant needs no set-up, and leaves no record.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client"
)

func main() {
	all := flag.Int64("all", 4, "how many jobs run at once")
	each := flag.Int64("each", 3, "how many jobs of one tenant run at once")
	jobs := flag.Int("jobs", 12, "how many jobs the busiest tenant has; the others have 2")
	flag.Parse()
	if err := run(context.Background(), *all, *each, map[string]int{"acme": *jobs, "globex": 2, "initech": 2}); err != nil {
		log.Fatal(err)
	}
}

// run does the jobs of all tenants, with one worker for each job.
func run(ctx context.Context, all, each int64, jobs map[string]int) (err error) {
	c, err := client.New(client.Config{Addresses: addresses()})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	name := fmt.Sprintf("tenant-pool-%d", os.Getpid()) // for this run; yours has a fixed name
	if _, _, err := c.Put(ctx, name, client.Permits(all), client.Groups(client.ByRequest), client.PerGroup(each)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Delete(ctx, name)) }()
	p := &pool{c: c, name: name, running: map[string]int{}}
	var workers sync.WaitGroup
	for tenant, count := range jobs {
		for range count {
			workers.Go(func() {
				if err := p.do(ctx, tenant); err != nil {
					log.Print(err)
				}
			})
		}
	}
	workers.Wait()
	if p.most > int(each) || p.mostInAll > int(all) {
		return fmt.Errorf("%d jobs of a tenant and %d in all ran at once", p.most, p.mostInAll)
	}
	fmt.Printf("%d jobs are done, never more than %d of a tenant and %d in all at once\n", p.done, each, all)
	return nil
}

// pool counts the jobs, to show that the limits hold.
type pool struct {
	c    *client.Client
	name string

	mu              sync.Mutex
	running         map[string]int // by tenant
	inAll, done     int
	most, mostInAll int // at once: of one tenant, and in all
}

// do waits for a place of the tenant and then does one job.
func (p *pool) do(ctx context.Context, tenant string) error {
	lease, err := p.c.Acquire(ctx, p.name, client.Group(tenant))
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	work, stop := lease.Context(ctx) // ends when the lease is lost
	defer stop()
	p.count(tenant, 1)
	defer p.count(tenant, -1)
	select {
	case <-time.After(50 * time.Millisecond): // the job
	case <-work.Done():
		return lease.Err()
	}
	return nil
}

func (p *pool) count(tenant string, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[tenant] += change
	p.inAll += change
	p.most, p.mostInAll = max(p.most, p.running[tenant]), max(p.mostInAll, p.inAll)
	if change < 0 {
		p.done++
		fmt.Printf("job %d: %s\n", p.done, tenant)
	}
}

// addresses are the nodes in SIGNALBOX_ADDR, or the first one of "make run".
func addresses() []string {
	if list := os.Getenv("SIGNALBOX_ADDR"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"http://127.0.0.1:8701"}
}

// Command rate-limit shows a limit on the number of calls in each period, over all machines: a semaphore whose leases
// are never renewed. Each call takes a lease that expires one period later, so no more calls begin in a period than the
// semaphore has permits. A caller waits in line for the next free permit.
//
// The Go client renews every lease, so this program sends its one request without the client. The Idempotency-Key makes
// a repeat safe: it takes no second lease.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client"
)

func main() {
	limit := flag.Int64("limit", 2, "calls in each period")
	period := flag.Duration("period", time.Second, "the period")
	calls := flag.Int("calls", 6, "how many calls to make")
	flag.Parse()
	if err := run(context.Background(), *limit, *period, *calls); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, limit int64, period time.Duration, calls int) error {
	nodes := addresses()
	c, err := client.New(client.Config{Addresses: nodes})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	const name = "rate-limit"
	if _, _, err := c.Put(ctx, name, client.Permits(limit)); err != nil { // also changes an earlier limit
		return err
	}
	begin := time.Now()
	for call := range calls {
		if err := take(ctx, nodes, name, period); err != nil {
			return err
		}
		fmt.Printf("call %d after %v\n", call+1, time.Since(begin).Round(10*time.Millisecond))
	}
	return nil
}

// take waits until the rate allows a call. It asks each node in turn.
func take(ctx context.Context, nodes []string, name string, period time.Duration) (err error) {
	key, body := rand.Text(), fmt.Sprintf(`{"ttl":"%dms","wait":"1m"}`, period.Milliseconds())
	for _, node := range nodes {
		var request *http.Request
		request, err = http.NewRequestWithContext(ctx, http.MethodPost, node+"/v1/semaphores/"+name+"/leases", strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Idempotency-Key", key)
		var response *http.Response
		if response, err = http.DefaultClient.Do(request); err != nil {
			continue
		}
		reply, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == http.StatusCreated {
			return nil
		}
		err = fmt.Errorf("%s: %s", response.Status, reply)
	}
	return err
}

// addresses are the nodes in SIGNALBOX_ADDR, or the first one of "make run".
func addresses() []string {
	if list := os.Getenv("SIGNALBOX_ADDR"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"http://127.0.0.1:8701"}
}

// Command model-gateway shows a gateway in front of a language model, with three limits over all gateways. Each tenant
// may make a number of requests a minute and spend a number of tokens a minute, and a number of calls go on at the same
// time, with the tenants in turn. One decision grants all three, so a call that waits for the model spends no tokens.
// The tokens of a call are an estimate until the reply tells the count. Then the gateway settles the difference, which
// is available again at once.
//
// A call that can't begin in time gets 429. Here the model is a function, and the gateway's clients are in this process;
// a real gateway has the same handler.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client"
)

// estimate is how many tokens a call reserves.
const estimate = 1000

func main() {
	requests := flag.Int64("requests", 3, "requests a minute of each tenant")
	tokens := flag.Int64("tokens", 2100, "tokens a minute of each tenant")
	flag.Parse()
	if err := run(context.Background(), *requests, *tokens); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, requests, tokens int64) error {
	c, err := client.New(client.Config{Addresses: addresses()})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	g := gateway{c, fmt.Sprintf("model-gateway-%d/", os.Getpid())} // for this run; yours has a fixed prefix
	perMinute := func(limit int64) []client.PutOption {
		return []client.PutOption{client.NoTotal(), client.Groups(client.ByRequest), client.PerGroup(limit), client.Window(time.Minute)}
	}
	for name, options := range map[string][]client.PutOption{
		"requests": perMinute(requests),
		"tokens":   perMinute(tokens),
		"calls":    {client.Permits(8), client.Groups(client.ByRequest), client.PerGroup(4)},
	} {
		if _, _, err := c.Put(ctx, g.prefix+name, options...); err != nil {
			return err
		}
		defer c.Delete(ctx, g.prefix+name)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	for _, call := range []string{"acme", "acme", "acme", "globex", "acme"} {
		reply, err := http.Post(server.URL+"/"+call, "text/plain", strings.NewReader("Tell me about railways."))
		if err != nil {
			return err
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		fmt.Printf("%s: %d %s", call, reply.StatusCode, text)
	}
	return nil
}

// gateway is a handler: the path names the tenant.
type gateway struct {
	c      *client.Client
	prefix string
}

func (g gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	soon, cancel := context.WithTimeout(r.Context(), 2*time.Second) // so long a call waits for its turn
	defer cancel()
	afterwards := context.WithoutCancel(r.Context()) // for what has to be done though the caller has hung up
	tenant := strings.Trim(r.URL.Path, "/")
	session, err := g.c.OpenSession(soon, client.SessionOptions{Metadata: map[string]string{"tenant": tenant}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer session.Close(afterwards) // ends the call's permit; what is spent stays spent
	leases, err := session.AcquireAll(soon, client.Want{Name: g.prefix + "requests", Group: tenant},
		client.Want{Name: g.prefix + "tokens", Group: tenant, Count: estimate}, client.Want{Name: g.prefix + "calls", Group: tenant})
	switch {
	case errors.Is(err, client.ErrUnavailable):
		http.Error(w, "too many requests or tokens this minute", http.StatusTooManyRequests)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		text, used := model(r.Body)
		if _, err := leases[1].Settle(afterwards, used); err != nil {
			log.Print(err) // the estimate stands
		}
		fmt.Fprintf(w, "%s (%d tokens)\n", text, used)
	}
}

// model stands for the model: it returns its reply, and what the call has cost.
func model(prompt io.Reader) (string, int64) {
	text, _ := io.ReadAll(prompt)
	return "Trains run on rails.", int64(500 + len(text))
}

// addresses are the nodes in SIGNALBOX_ADDR, or the first one of "make run".
func addresses() []string {
	if list := os.Getenv("SIGNALBOX_ADDR"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"http://127.0.0.1:8701"}
}

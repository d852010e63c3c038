// Package client is the Go client of Signalbox, a clustered service of counting
// semaphores.
//
// A Client talks to a cluster through any of its nodes:
//
//	c, err := client.New(client.Config{Addresses: []string{"http://n1:8701", "http://n2:8701", "http://n3:8701"}})
//	…
//	defer c.Close(ctx)
//
// # What callers can rely on
//
//  1. When a lease ends because it was not renewed, Lease.Lost closes before the cluster
//     grants the permits to another client, even if this process can reach no node. Lost
//     closes late after a pause of the process, a revocation by an operator or the
//     deletion of the semaphore; in these cases Lease.Token protects.
//  2. A call that changes something is carried out at most once, even if it is repeated,
//     and a waiting request keeps its place in line while nodes fail.
//  3. A call tries node after node until it has an outcome or ctx ends. It returns when
//     ctx ends, or at most 2 s later if it has to withdraw a request. Without a deadline
//     it ends once no node could carry it out for Config.GiveUpAfter.
//  4. errors.Is finds in an error the Err… value of the cluster's refusal, and
//     ErrOutcomeUnknown if a change may have been carried out or not.
//  5. Release and Close go on in the background until a node has confirmed them, or until
//     the deadline, when the cluster ends the lease itself. Client.Close waits for these
//     goroutines until its ctx ends.
//
// # Leases
//
// The shortest way to hold permits of one semaphore is Client.Acquire. It waits its
// turn, renews the lease in the background, and gives it back with Release:
//
//	lease, err := c.Acquire(ctx, "db", client.Count(2))
//	…
//	defer lease.Release(ctx)
//	work, stop := lease.Context(ctx) // ends when the lease is lost
//	defer stop()
//	err = job(work, lease.Token)
//
// Use a Session for several semaphores, one after another or at once (AcquireAll,
// AcquireAny), for a lock hierarchy, and for waits of any length that keep their place.
// It is renewed every third of its ttl until Close. When the process dies, its permits
// come back within the ttl.
//
// Permits can also be used without leases: producers add them with Up, consumers take
// them with Down. A Session can wait for many semaphores in the background:
// AddToWaitList adds a semaphore, WaitList returns the permits taken.
//
// # Groups and rules of a line
//
// Optional settings of a semaphore, which Put and Create take, say which requests are served, and in which order.
// For example, "pool" has at most 3 permits for each tenant and 100 in all, and serves tenants in turn; "branches" has
// one permit for each branch, without a limit in all:
//
//	c.Put(ctx, "pool", client.Permits(100), client.Groups(client.ByRequest), client.PerGroup(3))
//	c.Put(ctx, "branches", client.NoTotal(), client.Groups(client.ByRequest), client.PerGroup(1))
//	lease, err := c.Acquire(ctx, "branches", client.Group(branch))
//
// A session may have a lease in each group of a semaphore. SetGroupLimit gives a group its own limit, and
// ListGroups shows who uses how much. Pause stops grants, and requests keep their places. MaxWaiting bounds a line, and
// WhenFull says which request then fails, with ErrLineFull or ErrSuperseded. HeadStart moves a request forward in line.
//
// With a Window, granted permits come back a fixed time after the grant, for example for 600 calls a minute; Lease.Settle
// says later how many permits were really used. Cooldown delays the return of permits after a lease, and OnLost after
// the loss of a lease, if set until FreeLost. With Slots, a lease tells which of the permits it has. An example:
//
//	c.Put(ctx, "tpm", client.Permits(200_000), client.Window(time.Minute))
//	lease, err := c.Acquire(ctx, "tpm", client.Count(3000))
//	settled, err := lease.Settle(ctx, used)
//
// # When is a lease lost?
//
// Lease.Lost closes as soon as the lease can't be relied on: a node has reported its end,
// or its deadline has passed on this process's own clock. Each successful renewal moves the
// deadline. On Linux that clock goes on while the machine is suspended. An unreachable
// cluster is no reason to close Lost earlier, because the cluster grants the permits to no
// other client before the deadline. The deadline counts from when an HTTP request was sent, not from when its
// reply came, so that Lost closes first. SessionOptions.Margin makes Lost close earlier, so
// that work has time to stop.
//
// No client can notice that it was paused. After a stop of the process, a suspension of the machine or a long pause of
// the scheduler, it may work for up to a second as if it held its lease. Lease.Token protects in this case: it is larger
// at each grant of a semaphore, so a resource should refuse a smaller token than it has seen.
//
// # Failures
//
// A call is sent to the node that worked last. If that node fails (no connection, silence,
// 503, 504), the next node is asked, until one replies or ctx ends. There is a short random
// pause each time that all nodes have failed. A node that asks for a pause with Retry-After
// is not asked before that time.
//
// A node that accepts HTTP requests and never replies costs a call a share of its time: the
// time until ctx's deadline, divided by the nodes that the call has not asked yet, and at
// least 500 ms; without a deadline, Config.AttemptTimeout. From then on the node is
// suspect: the other nodes are asked first until it has replied to an HTTP request. A call
// that waits in line lets the node hold an HTTP request for a part of that share only, and
// then sends another. The waiting request keeps its place in line.
//
// An overloaded cluster (ErrOverloaded) is asked again after the time that it asks
// for, until ctx ends. ErrLimitReached is about a configured limit. It is returned at once,
// except to a request that waits already, a Release and a Close, which are repeated. If the
// limit is one of a single node (connections, bodies, replies, watchers), each other node
// is asked once before the error is returned.
//
// Every call that changes something carries an Idempotency-Key, so that a repeat gets
// the outcome of the first attempt if that was carried out. For example, a repeated Down
// takes its permits once. (Renewing and ending a session need no key, because a repeat has
// no further effect.) If ctx ends, another node tells within 2 s what became of the call.
// A call whose ctx has no deadline gives up after Config.GiveUpAfter.
//
// An error wraps all its causes; use errors.Is:
//
//   - an Err… value of this package for each refusal of the cluster; errors.As with
//     *Error for its details;
//   - context.DeadlineExceeded or context.Canceled when ctx ended, together with
//     ErrUnavailable if it was waiting for permits, or ErrUnreachable if no node
//     replied (its text has the address), and with ErrOutcomeUnknown if the call may have been carried out;
//   - ErrLost when a session or lease was lost.
//
// # Concurrency
//
// All types are safe for concurrent use. Calls of several goroutines share HTTP requests:
// the first call is sent at once, and calls that come while it is under way share the next
// HTTP request (/v1/batch). Each call keeps its own ctx, outcome and repeats. Acquires and
// Downs that need not wait, Ups, SetValues, OpenSessions, releases and ends share HTTP
// requests; a call that waits in line does not. So use one Client for a process. Each open session,
// and each lease of Client.Acquire, has a goroutine that renews it. Each release or end that
// is not confirmed yet has a goroutine, until its deadline at the latest. Client.Close waits
// for these goroutines until its ctx ends.
//
// The client is a separate module, which needs only the standard library. Package test/clienttest of the server's
// module is a node in memory, for tests of programs.
//
// # Files
//
// Package client/internal/calls sends a call to the nodes, and decides after a failure
// whether to ask another node. Package client/operator has the calls for operators of a
// cluster, and client/batch submits many operations in one HTTP request.
//
//   - client.go: Config, New, Close
//   - options.go: the options of all calls
//   - settings.go: the optional settings of semaphores; Pause, Resume
//   - returns.go: windows, lost holds, longest holds and slots
//   - group.go: Group; the groups of a semaphore, and their limits
//   - error.go: refusals and the Client's own errors
//   - semaphore.go: Create, Put, Get, List, Delete, Up, Down, SetValue, Watch
//   - contention.go: which calls try before they wait
//   - oneshot.go: Acquire of one lease, without a session of the caller's; WithLease
//   - process.go: the metadata that identifies this process
//   - session.go: sessions: opening, deadline, renewal, loss
//   - acquire.go: Acquire, AcquireAll and AcquireAny of a session
//   - lease.go: leases, and their release until a node confirms it; Detach
//   - ending.go: the end of a session, until a node confirms it
//   - waitlist.go: wait lists: downs in the background
//   - cells.go: Cells, a Client for each of several clusters that share the names
package client

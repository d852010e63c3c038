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
//  1. When a lease ends for want of a renewal, Lease.Lost closes before the cluster grants
//     the permits to another client, also in a process that is cut off from all nodes.
//     Lost reports a pause of the process, an operator's revocation and the deletion of
//     the semaphore late: there Lease.Token protects.
//  2. A call that changes something is carried out at most once, however often it had to
//     be repeated, and a waiting request keeps its place in line while nodes fail.
//  3. A call goes on, from node to node, until it has an outcome or ctx ends. It returns
//     when ctx ends, at most 2 s later where a request has to be withdrawn. Without a
//     deadline it ends once no node could carry it out for Config.GiveUpAfter.
//  4. errors.Is finds in an error the Err… value of the cluster's refusal, and also
//     ErrOutcomeUnknown if a change may have been carried out or not.
//  5. Release and Close go on in the background until a node has confirmed them, or until
//     the deadline, when the cluster ends the lease itself. Client.Close waits for the end
//     of all goroutines, as long as its ctx lasts.
//
// The sections below have the details, and the reasons.
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
// A Session is for more than that: several semaphores, one after another or at once
// (AcquireAll, AcquireAny), a lock hierarchy, waits of any length that keep their
// place. It is renewed every third of its ttl until Close; when the process dies,
// all that it holds comes back within the ttl.
//
// Other permits have no owner: Up adds them, Down takes them, as producers and
// consumers do. A Session can wait for many semaphores in the
// background: AddToWaitList adds one, WaitList returns the permits taken.
//
// # Groups and rules of a line
//
// Optional settings of a semaphore, which Put and Create take, say which requests are served, and in which order.
// At most 3 permits for each tenant and 100 in all, tenants in turn; and one for each branch, without a limit in all:
//
//	c.Put(ctx, "pool", client.Permits(100), client.Groups(client.ByRequest), client.PerGroup(3))
//	c.Put(ctx, "branches", client.NoTotal(), client.Groups(client.ByRequest), client.PerGroup(1))
//	lease, err := c.Acquire(ctx, "branches", client.Group(branch))
//
// A session may have a lease in each group of a semaphore. SetGroupLimit gives a group an own limit, and
// ListGroups shows who uses how much. Pause stops grants and keeps the places; MaxWaiting bounds a line, and WhenFull
// says which request then fails, with ErrLineFull or ErrSuperseded; HeadStart lets a request go before others.
//
// A Window spends the permits that are granted; they come back when the window has passed: "600 a minute". Lease.Settle
// says later how many were really spent. Cooldown and OnLost keep away what a lease gave up, or what a dead
// holder had, until FreeLost. Slots say which of the permits a lease has:
//
//	c.Put(ctx, "tpm", client.Permits(200_000), client.Window(time.Minute))
//	lease, err := c.Acquire(ctx, "tpm", client.Count(3000))
//	settled, err := lease.Settle(ctx, used)
//
// # When is a lease lost?
//
// Lease.Lost closes as soon as the lease can't be relied on: a node reported its end,
// or its deadline has passed on this process's own clock without a renewal that
// succeeded. On Linux that clock goes on while the machine is suspended. An unreachable
// cluster is no loss: as long as the deadline is ahead, it grants the permits to no other
// client. The deadline counts from when a request was sent, not from when its reply came,
// so that Lost closes before the cluster could grant again, even when cut off from all
// nodes. Work needs time to stop: SessionOptions.Margin makes Lost close that much earlier.
//
// No client can notice that it was paused: a stopped process, a suspended machine or a long pause of the
// scheduler goes on, for up to a second, as if it held its lease. Lease.Token is for that: it is larger at each
// grant of a semaphore, and a resource that refuses smaller ones than it has seen is safe.
//
// # Failures
//
// A call is sent to the node that worked last. Without a reply (no connection, silence,
// 503, 504) the next one is asked, after a short random pause each time that all have
// failed, and not before the time that a node asked for with Retry-After; until one
// replies or ctx ends.
//
// A node that accepts requests and never replies costs a call a share of its time: the
// time that is left until ctx's deadline, divided by the nodes that the call has not
// asked yet, and at least 500 ms; without a deadline, Config.AttemptTimeout. From then
// on it is suspect: other nodes are asked before it until it has replied to something.
// So that this holds for waits too, a node is asked to hold a request for a part of
// that share only; the request keeps its place in line.
//
// An overloaded cluster (ErrOverloaded) is asked again after the time that it asks
// for, until ctx ends. ErrLimitReached is about a configured limit and returned at once,
// but for a request that waits already, a Release and a Close: these go on. Where the
// limit is a node's own (connections, bodies, replies, watchers), the others are asked
// once each before that.
//
// Every call that changes something carries an Idempotency-Key, so that a repeat gets
// the outcome of the first attempt if that was carried out: a permit is not taken
// twice, and a waiting request keeps its place. (Renewing and ending a session need no
// key: twice is the same as once.) What became of a call whose ctx has ended is found
// out at another node, within 2 s. A call whose ctx has no deadline gives up after
// Config.GiveUpAfter.
//
// An error wraps all that it comes from; use errors.Is:
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
// Everything may be used by several goroutines, which share requests: the first call
// leaves at once, and calls that come while it is under way share the next request
// (/v1/batch). Each call keeps its own ctx, outcome and repeats. Acquires and Downs that
// need not wait, Ups, SetValues, OpenSessions, releases and ends share; a request that
// waits in line does not. So use one Client for a process. Each open session, and each lease of
// Client.Acquire, has one goroutine that renews it, and each release or end that is not
// yet confirmed has one, until its deadline at the latest; Close waits for their end,
// as long as its ctx lasts.
//
// The client is a separate module, which needs the standard library alone, and no package of the server. A node in
// memory, for tests of programs, is package test/clienttest of the server's module.
//
// # Files
//
// Sessions and leases are made of calls; package client/internal/calls sends a call to
// the nodes, and decides which failure makes it ask another one. Package client/operator
// has the calls of those who watch over a cluster, client/batch those that submit many
// operations at once.
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

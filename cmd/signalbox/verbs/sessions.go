package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/waiting"
)

func sessionVerbs() []verb {
	return []verb{acquireVerb(), renewVerb(), releaseVerb(), settleVerb(), sessionsVerb(), revokeVerb(), endVerb()}
}

// lease is the JSON form of an acquired lease.
type lease struct {
	Session   string `json:"session"`
	Semaphore string `json:"semaphore"`
	Group     string `json:"group,omitempty"`
	Count     int64  `json:"count"`
	Token     uint64 `json:"token"`
	Slots     []int  `json:"slots,omitempty"`
	Spent     bool   `json:"spent,omitempty"`
	TTLMS     int64  `json:"ttl_ms"`
}

func acquireVerb() verb {
	var n int64
	var ttl, wait time.Duration
	var metadata map[string]string
	var anonymous bool
	var g groupFlags
	return verb{use: "acquire NAME", short: "Acquire permits, and leave the lease to its ttl", minimum: 1, maximum: 1, complete: []source{semaphoreNames},
		long: "\n\nIt prints the session, the fencing token and, of a semaphore with slots, the slots. The lease is not renewed:\n" +
			"\"signalbox renew SESSION\" renews it once, and \"signalbox release SESSION\" ends it. \"signalbox run\" holds permits for as\n" +
			"long as a command runs.",
		flags: func(flags *pflag.FlagSet) {
			flags.Int64VarP(&n, "count", "n", 1, "how many permits")
			flags.DurationVar(&ttl, "ttl", 30*time.Second, "how long the lease lives without a renewal")
			flags.DurationVar(&wait, "wait", 0, "how long to wait for the permits; 0: not at all")
			flags.StringToStringVar(&metadata, "metadata", nil, "key=value,…: shown with the lease, for people")
			flags.BoolVar(&anonymous, "anonymous", false, "leave host, pid and user out of the metadata")
			g.add(flags)
		},
		run: func(c *call) error {
			if err := cmp.Or(checkTTL(ttl), checkRequest(n, wait)); err != nil {
				return err
			}
			options := []signalbox.LeaseOption{signalbox.Count(n), signalbox.TTL(ttl), signalbox.Group(g.group), signalbox.HeadStart(g.headStart)}
			if len(metadata) > 0 {
				options = append(options, signalbox.Metadata(metadata))
			}
			cfg := c.cluster
			cfg.Anonymous = anonymous
			client, err := signalbox.New(cfg)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close(c) }() // the session and its lease stay
			name := c.arguments[0]
			held, err := within(c, wait, func(ctx context.Context, try bool) (*signalbox.Lease, error) {
				if try {
					return client.TryAcquire(ctx, name, options...)
				}
				defer waiting.Show(ctx, c.terminal, waiting.For(c.client, name, n, isThisProcess))()
				return client.Acquire(ctx, name, options...)
			})
			if err != nil {
				return c.notFree(err, name, n, wait)
			}
			if err := held.Detach(); err != nil {
				return err
			}
			return errors.Join(c.Result(held.Session, lease{held.Session, name, held.Group, held.Count, held.Token, held.Slots(), held.Spent(), ttl.Milliseconds()}),
				c.Printf("%s", strings.TrimSpace(fmt.Sprintf("%s %d %s", held.Session, held.Token, cli.FormatSlots(held.Slots())))))
		}}
}

// isThisProcess reports whether a waiter is a request of this process. The session's id is not known before the grant,
// so it compares host and process id.
func isThisProcess(w *signalbox.Waiter) bool {
	host, err := os.Hostname()
	return err == nil && w.Metadata["host"] == host && w.Metadata["pid"] == strconv.Itoa(os.Getpid())
}

// ofAnotherUser reports whether metadata names another user than this process's. It does not compare machines, since
// the steps of a job may run on several machines.
func ofAnotherUser(metadata map[string]string) bool {
	names := []string{"", strconv.Itoa(os.Getuid())}
	if u, err := user.Current(); err == nil { // in a container, the user often has no name
		names = append(names, u.Username)
	}
	return !slices.Contains(names, metadata["user"])
}

// checkTTL refuses a ttl that is too short for the API.
func checkTTL(ttl time.Duration) error {
	if ttl < time.Millisecond {
		return cli.UsageError(errors.New("--ttl must be at least 1ms"))
	}
	return nil
}

// checkRequest refuses a count or a wait that no request can have.
func checkRequest(n int64, wait time.Duration) error {
	switch {
	case n < 1:
		return cli.UsageError(errors.New("--count must be above 0"))
	case wait < 0:
		return cli.UsageError(errors.New("--wait must not be below 0"))
	}
	return nil
}

func renewVerb() verb {
	var ttl time.Duration
	return verb{use: "renew SESSION", short: "Renew a session, and so its leases, once", long: "\n\nIt prints how long it lives now.", minimum: 1, maximum: 1, complete: []source{sessionIDs},
		flags: func(flags *pflag.FlagSet) {
			flags.DurationVar(&ttl, "ttl", 0, "a new ttl; without it the session keeps its ttl")
		},
		run: func(c *call) error {
			if c.flags.Changed("ttl") {
				if err := checkTTL(ttl); err != nil {
					return err
				}
			}
			left, err := c.operator.RenewSession(c, c.arguments[0], ttl)
			if err != nil {
				return sessionOver(err, c.arguments[0])
			}
			return errors.Join(c.Result(c.arguments[0], map[string]any{"session": c.arguments[0], "expires_in_ms": left.Milliseconds()}), c.Printf("%s", cli.ShortDuration(left)))
		}}
}

// maxHold is the reason with which a lease ends after its semaphore's longest hold.
const maxHold = "max-hold"

// sessionOver adds advice to the error that a session is over.
func sessionOver(err error, id string) error {
	reason := ""
	var refusal *signalbox.Error
	errors.As(err, &refusal)
	switch {
	case errors.Is(err, signalbox.ErrUnknownSession):
		reason = "is not there: it has been released, or its end is long ago"
	case errors.Is(err, signalbox.ErrExpiredSession):
		reason = "has expired: it was not renewed in time, and its permits may be another client's"
	case errors.Is(err, signalbox.ErrRevoked) && refusal != nil && refusal.Reason == maxHold:
		reason = "has ended: its lease was held for as long as the semaphore allows"
	case errors.Is(err, signalbox.ErrRevoked):
		reason = "was ended by an operator"
		if refusal != nil && refusal.Reason != "" {
			reason += ": " + refusal.Reason
		}
	default:
		return err
	}
	return &cli.ExitError{Status: cli.StatusLost, Err: &cli.Advice{Err: fmt.Errorf("the session %s %s", id, reason),
		Next: "\"signalbox sessions\" lists the living sessions."}}
}

func releaseVerb() verb {
	var group string
	return verb{use: "release SESSION [NAME]", short: "Release a lease, or end a session with all that it holds", minimum: 1, maximum: 2, complete: []source{sessionIDs, semaphoreNames},
		long: "\n\nWith NAME, the session lives on and loses that lease, or its request for it, alone. --group is needed if it has several of them.\n" +
			"It asks first if the session is another user's.",
		flags: func(flags *pflag.FlagSet) { groupFlag(&group, flags) },
		asks: func(c *call) (string, error) {
			s, err := c.operator.GetSession(c, c.arguments[0])
			if err != nil {
				return "", sessionOver(err, c.arguments[0])
			}
			if !ofAnotherUser(s.Metadata) {
				return "", nil
			}
			return fmt.Sprintf("Release %s of another user, %s. The client may still be running: the tokens fence it.",
				cli.Printable(cmp.Or(c.argument(1), orNone(firstLeases(s, lineLeases)))), cli.FormatClientOf(s.Metadata, s.ID)), nil
		},
		run: func(c *call) error {
			id, name := c.arguments[0], c.argument(1)
			s, err := c.operator.GetSession(c, id)
			if err != nil {
				return sessionOver(err, id)
			}
			released := leasesOf(s)
			if name == "" {
				err = c.operator.EndSession(c, id)
			} else {
				var found ownedLease
				if found, err = findLease(c, s, name, group); err != nil {
					return err
				}
				released = inGroup(name, found.group)
				err = c.operator.ReleaseLease(c, id, name, found.token, leaseIn(found.group)...)
			}
			if err != nil {
				return sessionOver(err, id)
			}
			return errors.Join(c.Result(id, map[string]string{"session": id, "released": released}), c.Printf("released: %s", cli.Printable(orNone(released))))
		}}
}

// ownedLease is a lease of a session, or, with token 0, a request for a lease.
type ownedLease struct {
	group string
	count int64
	token uint64 // identifies the lease, so that a later lease for the same semaphore is not meant
	spent bool   // the lease is a receipt of a semaphore with a window
}

// leaseIn returns the option for a lease in a group.
func leaseIn(group string) []operator.LeaseOption {
	if group == "" {
		return nil
	}
	return []operator.LeaseOption{operator.OfGroup(group)}
}

// findLease returns a session's lease of a semaphore, or its request. If there are several, --group selects one.
func findLease(c *call, s *operator.Session, name, group string) (ownedLease, error) {
	var found []ownedLease
	for _, l := range s.Leases {
		if l.Semaphore == name {
			found = append(found, ownedLease{l.Group, l.Count, l.Token, l.Spent})
		}
	}
	for _, w := range s.Waiting {
		for _, want := range w.Wants() {
			if want.Name == name {
				found = append(found, ownedLease{group: want.Group, count: want.Count})
			}
		}
	}
	if c.flags != nil && c.flags.Changed("group") || len(found) > 1 {
		found = slices.DeleteFunc(found, func(l ownedLease) bool { return l.group != group })
	}
	if len(found) == 0 {
		return ownedLease{}, refusedFor(fmt.Sprintf("It has: %s.", orNone(firstLeases(s, lineLeases))),
			"%s neither holds %s nor waits for it", cli.FormatClientOf(s.Metadata, s.ID), inGroup(name, group))
	}
	return found[0], nil
}

func orNone(text string) string {
	if text == "" {
		return "no lease"
	}
	return text
}

func leasesOf(s *operator.Session) (text string) {
	for _, l := range s.Leases {
		if text != "" {
			text += ", "
		}
		if text += inGroup(l.Semaphore, l.Group); l.Count > 1 {
			text += fmt.Sprintf(" ×%d", l.Count)
		}
		if len(l.Slots) > 0 {
			text += " [" + slotRanges(l.Slots) + "]"
		}
		if l.Spent {
			text += " spent"
		}
	}
	return text
}

func sessionsVerb() verb {
	return verb{use: "sessions", short: "List sessions, with what they hold",
		run: func(c *call) error {
			return cli.PrintList(c.Output, c.operator.ListSessions(c, operator.PageSize(pageSize)),
				[]string{"CLIENT", "SESSION", "HOLDS", "WAITS", "TTL", "LEFT"}, func(s *operator.Session) string { return s.ID },
				func(s *operator.Session) []string {
					return []string{cli.FormatClient(s.Metadata), s.ID, firstLeases(s, lineLeases), fmt.Sprint(s.WaitingCount), cli.ShortDuration(s.TTL), cli.ShortDuration(s.ExpiresIn)}
				})
		}}
}

func reasonFlag(reason *string) func(*pflag.FlagSet) {
	return func(flags *pflag.FlagSet) {
		flags.StringVar(reason, "reason", "", "shown to the client whose permits are taken")
	}
}

func revokeVerb() verb {
	var reason, group string
	return verb{use: "revoke NAME SESSION", short: "Take a lease away from a session, as an operator", minimum: 2, maximum: 2, complete: []source{semaphoreNames, sessionIDs},
		long: "\n\nIts permits are available at once, and the session lives on. It asks first.",
		flags: func(flags *pflag.FlagSet) {
			reasonFlag(&reason)(flags)
			groupFlag(&group, flags)
		},
		asks: func(c *call) (string, error) {
			s, err := c.operator.GetSession(c, c.arguments[1])
			if err != nil {
				return "", sessionOver(err, c.arguments[1])
			}
			for _, l := range s.Leases {
				if l.Semaphore == c.arguments[0] && l.Group == group {
					return fmt.Sprintf("Take %d of %s from %s. The holder may still be running: the token %d fences it.",
						l.Count, cli.Printable(inGroup(l.Semaphore, group)), cli.FormatClientOf(s.Metadata, s.ID), l.Token), nil
				}
			}
			return "", notHeldBy(s, c.arguments[0], group)
		},
		run: func(c *call) error {
			name, id := c.arguments[0], c.arguments[1]
			if err := c.operator.Revoke(c, name, id, reason, 0, leaseIn(group)...); err != nil {
				if errors.Is(err, signalbox.ErrNotHeld) {
					s, err := c.operator.GetSession(c, id)
					if err != nil {
						return sessionOver(err, id)
					}
					return notHeldBy(s, name, group)
				}
				return sessionOver(err, id)
			}
			return errors.Join(c.Result(id, map[string]string{"session": id, "revoked": name}), c.Printf("%s revoked", cli.Printable(name)))
		}}
}

// notHeldBy is the error of a session that does not hold a semaphore in this group. It shows what the session holds.
func notHeldBy(s *operator.Session, name, group string) error {
	return refusedFor(fmt.Sprintf("It has: %s.", orNone(firstLeases(s, lineLeases))),
		"%s does not hold %s", cli.FormatClientOf(s.Metadata, s.ID), inGroup(name, group))
}

func endVerb() verb {
	var reason string
	return verb{use: "end SESSION", short: "End a session, as an operator", minimum: 1, maximum: 1, complete: []source{sessionIDs},
		long:  "\n\nIts permits are available at once, and its requests are withdrawn. It asks first.",
		flags: reasonFlag(&reason),
		asks: func(c *call) (string, error) {
			s, err := c.operator.GetSession(c, c.arguments[0])
			if err != nil {
				return "", sessionOver(err, c.arguments[0])
			}
			return fmt.Sprintf("End %s, which holds: %s. Its client may still be running: the tokens fence it.",
				cli.FormatClientOf(s.Metadata, s.ID), cli.Printable(orNone(firstLeases(s, lineLeases)))), nil
		},
		run: func(c *call) error {
			id := c.arguments[0]
			if _, err := c.operator.GetSession(c, id); err != nil {
				return sessionOver(err, id)
			}
			if err := c.operator.RevokeSession(c, id, reason); err != nil {
				return err
			}
			return errors.Join(c.Result(id, map[string]string{"ended": id}), c.Printf("%s ended", id))
		}}
}

package verbs

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/items"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// itemVerb has the verbs of items below it.
func itemVerb() verb {
	return verb{use: "item", short: "Small named values that a session may hold", below: []verb{itemLs(), itemGet(), itemPut(), itemRm()},
		run: func(*call) error {
			return cli.UsageError(&cli.Advice{Err: errors.New("item needs one of: ls, get, put, rm"), Next: "See \"signalbox item --help\"."})
		}}
}

func itemNames(c *call, begun string) iter.Seq2[string, error] {
	return words(items.New(c.client).List(c, begun), itemName)
}

func itemName(i *items.Item) string { return i.Name }

func itemLs() verb {
	return verb{use: "ls [PREFIX]", short: "List items", long: "\n\nWith PREFIX, the items whose names begin with it.", maximum: 1, complete: []source{itemNames},
		run: func(c *call) error {
			clients := sync.OnceValue(func() map[string]string { return clientsByID(c) }) // called at the first held item
			c.Empty = noNames("item", c.argument(0))
			return cli.PrintList(c.Output, items.New(c.client).List(c, c.argument(0)), []string{"NAME", "BYTES", "VERSION", "HOLDER", "SESSION"}, itemName,
				func(i *items.Item) []string {
					row := []string{i.Name, fmt.Sprint(len(i.Value)), fmt.Sprint(i.Version), "", i.Session}
					if i.Session != "" {
						row[3] = clients()[i.Session]
					}
					return row
				})
		}}
}

// maxClients bounds the number of sessions that clientsByID reads.
const maxClients = 10_000

// clientsByID returns the clients of up to maxClients visible sessions, by session id.
func clientsByID(c *call) map[string]string {
	clients := map[string]string{}
	for s, err := range c.operator.ListSessions(c, operator.PageSize(pageSize)) {
		if err != nil || len(clients) == maxClients {
			break // show ids of the other sessions
		}
		clients[s.ID] = cli.FormatClient(s.Metadata)
	}
	return clients
}

func itemGet() verb {
	return verb{use: "get NAME", short: "Print the value of an item", long: " With -o json, all of the item, a value that is no text in base64.", minimum: 1, maximum: 1, complete: []source{itemNames},
		run: func(c *call) error {
			i, err := items.New(c.client).Get(c, c.arguments[0])
			if err != nil {
				return noItem(err, c.arguments[0])
			}
			if c.Format != cli.Table {
				return c.Result(i.Name, i)
			}
			return c.Raw(i.Value)
		}}
}

// noItem adds advice to the error that an item does not exist.
func noItem(err error, name string) error {
	if errors.Is(err, items.ErrUnknownItem) {
		return refusedFor("\"signalbox item ls\" lists the existing items.", "there is no item %q", name)
	}
	return err
}

func itemPut() verb {
	var version, flags uint64
	return verb{use: "put NAME VALUE", short: "Give an item a value, and make it if it does not exist", minimum: 2, maximum: 2, complete: []source{itemNames, noWords},
		long: "\n\nWith - for VALUE it is read from the standard input. A session that holds the item goes on to hold it.",
		flags: func(set *pflag.FlagSet) {
			set.Uint64Var(&version, "if-version", 0, "only if the item has this version; 0: only if it does not exist")
			set.Uint64Var(&flags, "flags", 0, "a number of your own, kept with the value")
		},
		run: func(c *call) error {
			name, value := c.arguments[0], []byte(c.arguments[1])
			if c.arguments[1] == "-" {
				var err error
				if value, err = io.ReadAll(io.LimitReader(os.Stdin, maxValue+1)); err != nil {
					return err
				}
			}
			if len(value) > maxValue {
				return cli.UsageError(fmt.Errorf("a value has up to %d bytes", maxValue))
			}
			options := []items.Option{items.Flags(flags)}
			if c.flags.Changed("if-version") {
				options = append(options, items.IfVersion(version))
			}
			done, err := items.New(c.client).Put(c, name, value, options...)
			if err != nil {
				return differs(err, name)
			}
			return errors.Join(c.Result(name, done), c.Printf("%d", done.Version))
		}}
}

const maxValue = 512 << 10 // bytes

// differs adds advice to the error that an item is not as expected.
func differs(err error, name string) error {
	var refusal *signalbox.Error
	if !errors.Is(err, items.ErrDiffers) || !errors.As(err, &refusal) {
		return err
	}
	return refusedFor(fmt.Sprintf("See it with \"signalbox item get %s -o json\".", cli.ShellQuote(name)), "%s", refusal.Detail)
}

func itemRm() verb {
	return verb{use: "rm NAME", short: "Delete an item", long: "\n\nIts holder does not hold it any more, though it may still be running. It asks first.", minimum: 1, maximum: 1, complete: []source{itemNames},
		asks: func(c *call) (string, error) {
			i, err := items.New(c.client).Get(c, c.arguments[0])
			if err != nil {
				return "", noItem(err, c.arguments[0])
			}
			c.confirmed = i.Version
			return fmt.Sprintf("Delete the item %s of %d bytes. %s", cli.Printable(i.Name), len(i.Value), holder(c, i)), nil
		},
		run: func(c *call) error {
			name := c.arguments[0]
			var options []items.Option
			if c.confirmed != 0 {
				options = append(options, items.IfVersion(c.confirmed))
			}
			if err := items.New(c.client).Delete(c, name, options...); err != nil {
				return differs(err, name)
			}
			return errors.Join(c.Result(name, map[string]string{"deleted": name}), c.Printf("%s deleted", cli.Printable(name)))
		}}
}

// holder describes the holder of an item, whose process may continue after the item is deleted.
func holder(c *call, i *items.Item) string {
	switch {
	case !i.Held:
		return "No session holds it."
	case i.Session == "":
		return "A session that you may not see holds it, and its process may go on for a while."
	}
	var metadata map[string]string
	if s, err := c.operator.GetSession(c, i.Session); err == nil { // after an error, show only the session's id
		metadata = s.Metadata
	}
	return fmt.Sprintf("It is held by %s, whose process may go on for a while.", cli.FormatClientOf(metadata, i.Session))
}

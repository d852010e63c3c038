package verbs

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// source returns words that complete an argument, given its beginning.
type source func(c *call, begun string) iter.Seq2[string, error]

const (
	// completeWithin bounds how long a shell waits for words.
	completeWithin = 2 * time.Second
	// maxWords bounds the number of words that a shell gets.
	maxWords = 200
)

func semaphoreNames(c *call, begun string) iter.Seq2[string, error] {
	return words(c.client.List(c, begun, signalbox.Stale()), func(s *signalbox.Semaphore) string { return s.Name })
}

func sessionIDs(c *call, _ string) iter.Seq2[string, error] {
	return words(c.operator.ListSessions(c, operator.Stale()), func(s *operator.Session) string { return s.ID })
}

// memberIDs returns the ids of the nodes.
func memberIDs(c *call, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		cluster, err := c.readCluster()
		if err != nil {
			yield("", err)
			return
		}
		for _, m := range cluster.Members {
			if !yield(m.ID, nil) {
				return
			}
		}
	}
}

func words[T any](members iter.Seq2[T, error], word func(T) string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for m, err := range members {
			if err != nil {
				yield("", err)
				return
			}
			if !yield(word(m), nil) {
				return
			}
		}
	}
}

// completion returns the function with which a shell completes an argument. Without a cluster, it returns no words.
func (v verb) completion(flags *common, lookup func(string) (string, bool)) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, begun string) (found []string, _ cobra.ShellCompDirective) {
		const done = cobra.ShellCompDirectiveNoFileComp
		if len(v.complete) == 0 || len(arguments) >= v.maximum || cli.ApplyVariables(command.Flags(), lookup) != nil {
			return nil, done
		}
		ctx, cancel := context.WithTimeout(command.Context(), completeWithin)
		defer cancel()
		c, err := flags.call(ctx, nil, arguments, command.Flags(), nil)
		if err != nil {
			return nil, done
		}
		defer c.close()
		for word, err := range v.complete[min(len(arguments), len(v.complete)-1)](c, begun) {
			if err != nil || len(found) == maxWords {
				break
			}
			if strings.HasPrefix(word, begun) {
				found = append(found, word)
			}
		}
		return found, done
	}
}

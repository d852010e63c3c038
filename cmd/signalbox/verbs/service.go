package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/target"
)

// replyBytes bounds a reply that is no backup.
const replyBytes = 1 << 20

// service is the cluster that the flags of a verb name.
type service struct {
	http  *http.Client
	bases []*url.URL
}

// addService adds the flags of a cluster. open is to be called once they are parsed.
func addService(command *cobra.Command, lookup func(string) (string, bool)) (open func() (*service, error)) {
	flags := target.Add(command.Flags(), lookup)
	return func() (*service, error) {
		h, bases, err := flags.Service()
		return &service{h, bases}, err
	}
}

// refusal is the problem that a node replied with.
type refusal struct {
	Base   *url.URL `json:"-"`
	Status int
	Code   string
	Detail string
	Reason string
}

// Error names the node, the refusal and its reason.
func (r *refusal) Error() string {
	text := fmt.Sprintf("%s replied with %d %s", r.Base, r.Status, r.Code)
	for _, more := range []string{r.Detail, r.Reason} {
		if more != "" {
			text += ": " + more
		}
	}
	if r.Status == http.StatusUnauthorized {
		text += " Give a token of this cluster by --token-file or SIGNALBOX_TOKEN."
	}
	return text
}

// send sends a request and returns the reply if it is a success.
func (s *service) send(ctx context.Context, method string, base *url.URL, path string, body io.Reader, length int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, base.String()+path, body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = length
	if length > 0 {
		r.Header.Set("Expect", "100-continue") // a node that refuses it need not get it
	}
	reply, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode == http.StatusOK {
		return reply, nil
	}
	defer func() { _ = reply.Body.Close() }() // it was only read
	refused := &refusal{Base: base, Status: reply.StatusCode}
	_ = json.NewDecoder(io.LimitReader(reply.Body, replyBytes)).Decode(refused) // else the status alone says it
	refused.Status = reply.StatusCode
	return nil, refused
}

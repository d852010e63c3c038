package calls

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

// Upload sends a body of size bytes to the leader; the other nodes refuse it with the code not-leader. It asks the next
// node only if the upload certainly had no effect at the previous node, because a repeated upload would take effect
// twice. It has no time limit but ctx; the node limits how long a body may take.
func Upload(ctx context.Context, c *Caller, k Call, body io.ReaderAt, size int64) (Reply, error) {
	ctx, end := WithEither(ctx, c.ctx)
	defer end()
	for state := (retryState{}); ; {
		node, err := c.next(ctx, &state, &k)
		if err != nil || state.tooLong(ctx, c.cfg.GiveUpAfter) {
			return Reply{}, state.giveUpError(ctx, &k)
		}
		began := time.Now()
		r, err := upload(ctx, c, node, &k, io.NewSectionReader(body, 0, size))
		if err == nil {
			c.nodes.MarkWorked(node, began)
			return r, nil
		}
		var refusal *Refusal
		if errors.As(err, &refusal) {
			if refusal.Code != "not-leader" && refusal.Code != "no-leader" && refusal.Code != "draining" {
				return Reply{Node: node}, err
			}
		}
		c.countFailure(&state, &k, node, allowance{began: began}, err)
		if ctx.Err() != nil || state.ambiguous || isCertificateError(err) {
			return Reply{Node: node}, state.giveUpError(ctx, &k)
		}
	}
}

func upload(ctx context.Context, c *Caller, node *nodes.Node, k *Call, body *io.SectionReader) (Reply, error) {
	request, err := http.NewRequestWithContext(ctx, k.Method, "", body)
	if err != nil {
		return Reply{}, err
	}
	request.URL, request.Host, request.ContentLength = node.URL(k.Path, k.Query), "", body.Size()
	if body.Size() == 0 {
		request.Body = http.NoBody
	}
	c.setHeader(request, node, k, nil)
	request.Header.Set("Content-Type", "application/octet-stream")
	request.Header.Set("Expect", "100-continue") // a node that refuses the body need not get it
	r := Reply{Sent: c.Now(), Node: node}
	response, err := c.send(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close()
	if r.Body, err = io.ReadAll(io.LimitReader(response.Body, maxReply)); err != nil {
		return r, err
	}
	if r.Received, r.Status = c.Now(), response.StatusCode; r.Status != http.StatusOK {
		return r, c.newRefusal(response.Header, &r)
	}
	return r, nil
}

package callback

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox/signalbox/cluster/notices"
	"github.com/signalbox/signalbox/fsm"
)

const (
	// sendTimeout bounds one attempt, from resolving the name to the end of the read of the reply.
	sendTimeout = 5 * time.Second
	// maxAddress is the longest address that a notice may have.
	maxAddress = 2048
	// maxHead bounds the head of a reply.
	maxHead = 16 << 10
	// maxBody bounds how much of a reply's body is read. We read it so that the receiver can finish sending it.
	maxBody = 4 << 10
)

// Sender sends notices to the hosts of a list. It is safe for concurrent use.
type Sender struct {
	allowed allowList
	client  *http.Client
}

var _ notices.Notifier = (*Sender)(nil)

// New returns a Sender that calls only the hosts in allowed. Each entry is HOST[:PORT]; HOST is a name, an address, or a
// range of addresses such as 10.1.0.0/16. An entry without a port allows port 80 with http and port 443 with https. A
// name may lead to a public address; if it leads to another address, the list must have this address, or its range, as
// well. New fails on an entry of another form.
func New(allowed []string) (*Sender, error) {
	list, err := parseAllow(allowed)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Control: list.control}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		Proxy:                  nil, // a proxy would resolve and dial for itself
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
	}
	return &Sender{allowed: list, client: &http.Client{
		Transport:     transport,
		Timeout:       sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// control checks each address just before it is dialled. The dialer calls control after the resolver, so a name cannot
// lead to an address that was not checked.
func (l allowList) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !l.hasAddress(to.Addr(), to.Port()) {
		return fmt.Errorf("the name leads to %s, which is neither public nor in the list of what may be called", address)
	}
	return nil
}

// refusal is why an address is not called, in a sentence for clients.
type refusal string

// Error is the sentence.
func (r refusal) Error() string { return string(r) }

const (
	errNoAddress  refusal = "A callback is an address, http://host/path or https://host/path."
	errOff        refusal = "This service sends no callbacks: it was started without --callback-allow."
	errNotAllowed refusal = "This service does not call that host and port: its operator lists what it may call."
)

// Check returns nil, or why an address can't be called, as a sentence for the client. It resolves no name and does not
// block.
func (s *Sender) Check(address string) error {
	_, err := s.parse(address)
	return err
}

// parse returns an address that may be called.
func (s *Sender) parse(address string) (*url.URL, error) {
	if len(s.allowed) == 0 {
		return nil, errOff
	}
	u, err := url.Parse(address)
	if err != nil || len(address) > maxAddress || u.Opaque != "" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errNoAddress
	}
	port, usual, err := portOf(u)
	if err != nil {
		return nil, err
	}
	if !s.allowed.hasHost(u.Hostname(), port, usual) {
		return nil, errNotAllowed
	}
	return u, nil
}

// portOf returns the port of a URL, and the usual port of its scheme.
func portOf(u *url.URL) (port, usual uint16, err error) {
	usual, known := ports[u.Scheme]
	if !known {
		return 0, 0, errNoAddress
	}
	text := u.Port()
	if text == "" {
		return usual, usual, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, 0, errNoAddress
	}
	return uint16(n), usual, nil
}

// Host returns the host and port of an address, or "" for an address that may not be called. It implements
// [notices.Notifier].
func (s *Sender) Host(address string) string {
	u, err := s.parse(address)
	if err != nil {
		return ""
	}
	port, _, _ := portOf(u) // parse has checked it
	host := strings.ToLower(u.Hostname())
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// message is the body of a call.
type message struct {
	ID     uint64 `json:"id"`
	Name   string `json:"name"`
	Value  *int64 `json:"value"`  // available now; null if the semaphore is gone
	Reason string `json:"reason"` // "available" or "deleted"
}

// Notify makes one attempt of at most five seconds. It implements [notices.Notifier].
func (s *Sender) Notify(ctx context.Context, n fsm.NoticeView) error {
	u, err := s.parse(n.URL)
	if err != nil {
		return err
	}
	m := message{ID: n.ID, Name: n.Semaphore, Value: &n.Available, Reason: "available"}
	if n.Deleted {
		m.Value, m.Reason = nil, "deleted"
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(bytes.TrimSpace(body.Bytes())))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "signalbox")
	request.Header.Set("Idempotency-Key", key(n))
	return s.send(request)
}

// key returns the key by which a receiver recognises a repeated notice: its id and a digest. In each cluster the ids
// count from 1, so the digest distinguishes notices of several clusters. It is made from the replicated state without
// the available count, so it is the same in every attempt and from every leader.
func key(n fsm.NoticeView) string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %q %q", n.ID, n.Epoch, n.DueMS, n.Semaphore, n.URL))
	return fmt.Sprintf("signalbox-notice-%d-%x", n.ID, digest[:6])
}

// send sends a request. Its errors, which are logged, name only the host of the address: the rest of the address comes
// from the client and may hold a secret.
func (s *Sender) send(request *http.Request) error {
	response, err := s.client.Do(request)
	if err != nil {
		var urlError *url.Error
		if errors.As(err, &urlError) {
			err = urlError.Err
		}
		return fmt.Errorf("%s: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxBody) // so that the receiver can send it
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("%s replied with status %d", request.URL.Host, response.StatusCode)
	}
	return nil
}

package consul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	behaviorRelease = "release"
	behaviorDelete  = "delete"

	onlyCheck = "serfHealth" // the check of each node

	shortestTTL, longestTTL = 10 * time.Second, 24 * time.Hour
	defaultDelay            = 15 * time.Second
	longestDelay            = fsm.MaxItemDelayMS * time.Millisecond // the longest that takes effect; a longer one is only shown

	maxNameBytes    = 4096 // of a session's name; the rest is cut off
	maxTTLTextBytes = 64
	maxChecks       = 64 // of a session; the rest is dropped
)

// sessionNote is what a client says about its session. The session keeps it as one text.
type sessionNote struct {
	node   string
	ttl    string // as written
	delay  int64  // nanoseconds
	checks int    // how many, each of them onlyCheck; -1: null
	name   string
}

// text encodes what the client said, for the session to keep. The name comes last, since it may have any character.
func (a *sessionNote) text() string {
	return fmt.Sprintf("consul node=%s ttl=%s delay=%d checks=%d name=%s", a.node, a.ttl, a.delay, a.checks, a.name)
}

// parseNote reads a text; ok is false for a text that another API has written.
func parseNote(text string) (a sessionNote, ok bool) {
	var delay, checks string
	rest := text
	for _, part := range []struct {
		begin string
		into  *string
	}{{"consul node=", &a.node}, {"ttl=", &a.ttl}, {"delay=", &delay}, {"checks=", &checks}} {
		after, ok := strings.CutPrefix(rest, part.begin)
		if !ok {
			return sessionNote{}, false
		}
		*part.into, rest, _ = strings.Cut(after, " ")
	}
	var err, fault error
	a.delay, err = strconv.ParseInt(delay, 10, 64)
	a.checks, fault = strconv.Atoi(checks)
	a.name, ok = strings.CutPrefix(rest, "name=")
	return a, ok && err == nil && fault == nil && a.checks <= maxChecks
}

func (a *sessionNote) nodeChecks() []string {
	if a.checks < 0 {
		return nil
	}
	return slices.Repeat([]string{onlyCheck}, a.checks)
}

// lockDelay is a LockDelay of a body: text, or a number of seconds or nanoseconds.
type lockDelay time.Duration

// firstNanoseconds is the first number of a LockDelay that counts nanoseconds. Smaller numbers count seconds.
const firstNanoseconds = 1000

var errDelayBelowZero = errors.New("json: cannot unmarshal LockDelay, which is below 0")

// UnmarshalJSON implements json.Unmarshaler.
func (l *lockDelay) UnmarshalJSON(data []byte) (err error) {
	var d time.Duration
	var number float64
	var text string
	switch {
	case string(data) == "null":
		return nil
	case data[0] == '"':
		if err = json.Unmarshal(data, &text); err == nil {
			d, err = time.ParseDuration(text)
		}
	case json.Unmarshal(data, &number) != nil:
		err = errors.New("json: cannot unmarshal LockDelay, which is text or a number")
	case number < 0:
		err = errDelayBelowZero
	case number >= 1<<63:
		err = errors.New("json: cannot unmarshal number into LockDelay")
	case number < firstNanoseconds:
		d = time.Duration(number) * time.Second
	default:
		d = time.Duration(number)
	}
	if err == nil && d < 0 {
		err = errDelayBelowZero
	}
	*l = lockDelay(d)
	return err
}

// checks is the old form of NodeChecks. An empty list and null both say that the session has no check.
type checks struct {
	present bool
	ids     []string
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *checks) UnmarshalJSON(data []byte) error {
	o.present, o.ids = true, nil
	return json.Unmarshal(data, &o.ids)
}

// createBody is the body of a create. encoding/json decodes it as Consul does: the case of a name does not matter,
// unknown members are ignored, and of several members with one name the last counts.
type createBody struct {
	Name          string
	Node          string
	TTL           string
	Behavior      string
	LockDelay     lockDelay
	NodeChecks    []string
	Checks        checks
	ServiceChecks []struct{ ID string }
}

// newCreateBody returns the values of a create without a body.
func newCreateBody(node string) createBody {
	return createBody{Node: node, LockDelay: lockDelay(defaultDelay), NodeChecks: []string{onlyCheck}}
}

// readCreate reads a body, which may be missing or empty, over the defaults.
func (s sessions) readCreate(c echo.Context, into *createBody) error {
	data, err := s.Bodies.Receive(c, s.Config.BodyBytes)
	if err != nil {
		return err
	}
	if err := decodeCreate(data, into); err != nil {
		return exchange.Sentence(http.StatusBadRequest, "Request decode failed: "+err.Error())
	}
	return nil
}

func decodeCreate(data []byte, into *createBody) error {
	err := json.NewDecoder(strings.NewReader(string(data))).Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &wrong): // the error's own text names types of this program
		return fmt.Errorf("json: cannot unmarshal %s into %s", wrong.Value, cmp.Or(wrong.Field, "the body"))
	}
	return err
}

// failed returns the refusal of a body that was decoded but that can't be carried out.
func failed(format string, values ...any) error {
	return exchange.Sentence(http.StatusInternalServerError, fmt.Sprintf(format, values...))
}

// command returns the command of a create, without the session's id, or the refusal.
func (b *createBody) command(members []string, lingerPercent int) (command fsm.OpenHolder, err error) {
	if b.Behavior != "" && b.Behavior != behaviorRelease && b.Behavior != behaviorDelete {
		return command, failed("Invalid Behavior setting '%s'", b.Behavior)
	}
	ttl, err := b.ttl()
	if err != nil {
		return command, err
	}
	if !slices.Contains(members, b.Node) {
		return command, failed("apply failed: Missing node registration")
	}
	if missing, ok := b.missingCheck(); ok {
		return command, failed("apply failed: Missing check '%s' registration", missing)
	}
	info := sessionNote{node: b.Node, ttl: b.TTL, delay: int64(b.LockDelay), checks: min(len(b.NodeChecks), maxChecks), name: cutName(b.Name)}
	switch {
	case b.Checks.present && len(b.Checks.ids) == 0:
		info.checks = 0
	case b.NodeChecks == nil:
		info.checks = -1
	}
	command = fsm.OpenHolder{TTLMS: fsm.MaxTTLMS, About: info.text(), DeleteItems: b.Behavior == behaviorDelete,
		DelayMS: milliseconds(min(time.Duration(b.LockDelay), longestDelay))}
	if ttl > 0 {
		command.TTLMS = milliseconds(ttl + ttl/100*time.Duration(lingerPercent))
	}
	return command, nil
}

// ttl returns the TTL of the body, or 0 if the body has no TTL.
func (b *createBody) ttl() (ttl time.Duration, err error) {
	if b.TTL == "" {
		return 0, nil
	}
	if ttl, err = time.ParseDuration(b.TTL); err != nil {
		return 0, failed("Session TTL '%s' invalid: %v", b.TTL, err)
	}
	if ttl != 0 && (ttl < shortestTTL || ttl > longestTTL) {
		return 0, failed("Invalid Session TTL '%d', must be between [%v=%v]", ttl, shortestTTL, longestTTL)
	}
	if len(b.TTL) > maxTTLTextBytes {
		return 0, failed("Session TTL of %d characters: it has up to %d", len(b.TTL), maxTTLTextBytes)
	}
	return ttl, nil
}

// missingCheck returns a check that no node has.
func (b *createBody) missingCheck() (id string, missing bool) {
	for _, id := range slices.Concat(b.NodeChecks, b.Checks.ids) {
		if id != onlyCheck {
			return id, true
		}
	}
	for _, s := range b.ServiceChecks {
		return s.ID, true
	}
	return "", false
}

// milliseconds rounds a duration up, so that no lease or wait ends too early.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// cutName cuts a name to maxNameBytes, at a whole character.
func cutName(name string) string {
	if len(name) <= maxNameBytes {
		return name
	}
	end := maxNameBytes
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

package fleetlock

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"regexp"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// prefix begins the names of the groups' semaphores.
const prefix = "fleetlock/"

// machineKey is the metadata of a session that names its machine.
const machineKey = "machine"

type dialect struct{ *exchange.Exchange }

// New returns the dialect.
func New(x *exchange.Exchange) exchange.Dialect {
	d := &dialect{x}
	return exchange.Dialect{Render: d.render, Routes: []exchange.Route{
		exchange.On("POST", "/v1/pre-reboot", d.lock),
		exchange.On("POST", "/v1/steady-state", d.unlock),
	}}
}

// lock takes a slot for a machine, or finds that the machine has a slot. A refusal leaves no session.
func (d *dialect) lock(c echo.Context) error {
	m, err := d.machine(c)
	if err != nil {
		return err
	}
	// A machine with a slot has a session, and the Acquire finds the slot. Otherwise AcquireOnce makes a session.
	inSession := fsm.Acquire{Session: m.session(), Name: m.semaphore(), Count: 1, TTLMS: fsm.KeepTTL, Try: true}
	reply, err := d.do(c, inSession)
	if err == nil && (reply.Code == fsm.UnknownSession || reply.Code == fsm.ExpiredSession) {
		reply, err = d.do(c, fsm.AcquireOnce{Session: m.session(), Name: m.semaphore(), Count: 1, TTLMS: fsm.MaxTTLMS,
			Metadata: []fsm.Pair{{Key: machineKey, Value: m.ID}}})
		if err == nil && reply.Code == fsm.SessionIDTaken { // by a repeat of this request, or by another identity
			reply, err = d.do(c, inSession)
		}
	}
	switch {
	case err != nil:
		return err
	case reply.Code == fsm.UnknownSemaphore:
		p := exchange.Refused(&reply.Result)
		p.Detail = "The group has no slots. An operator creates them: signalbox create " + m.semaphore() + " --permits 1"
		return p
	case reply.Code == fsm.UnknownSession:
		return errOtherIdentity
	case reply.Code != fsm.OK:
		return exchange.Refused(&reply.Result)
	}
	return d.Replies.SendText(c, http.StatusOK, "")
}

// unlock releases the slot of a machine. If the machine has no slot, it succeeds.
func (d *dialect) unlock(c echo.Context) error {
	m, err := d.machine(c)
	if err != nil {
		return err
	}
	reply, err := d.do(c, fsm.Release{Session: m.session(), Name: m.semaphore()})
	switch {
	case err != nil:
		return err
	case reply.Code == fsm.OK, reply.Code == fsm.UnknownSemaphore, reply.Code == fsm.Revoked:
	case reply.Code == fsm.UnknownSession, reply.Code == fsm.ExpiredSession:
		if err := d.checkSession(c, m.session(), reply.Index); err != nil {
			return err
		}
	default:
		return exchange.Refused(&reply.Result)
	}
	return d.Replies.SendText(c, http.StatusOK, "")
}

// errOtherIdentity refuses a request for a machine whose session another identity has.
var errOtherIdentity = exchange.NewProblem("forbidden", "The slot of the machine belongs to another identity: all machines of a fleet need tokens of one name.")

// checkSession fails if the machine's session belongs to another identity. The reply to the release does not tell: it
// is the same if the session has ended. So checkSession looks for the session in this node's state, once this state has
// the index of the release.
func (d *dialect) checkSession(c echo.Context, session, index uint64) error {
	if _, err := d.Node.Read(c.Request().Context(), calls.Consistency{MinIndex: index}); err != nil {
		return err
	}
	ok := false
	d.Reads.View(c, func(m *fsm.Machine) { ok = m.HasSession(session) })
	if ok {
		return errOtherIdentity
	}
	return nil
}

func (d *dialect) do(c echo.Context, command fsm.Command) (*calls.Reply, error) {
	return d.Perform(exchange.Derived(c.Request().Context()), c, calls.Call{Command: command})
}

// machine is the client of a request.
type machine struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

// group is the form of a group's name.
var group = regexp.MustCompile(`^[a-zA-Z0-9.-]{1,256}$`)

func (d *dialect) machine(c echo.Context) (m machine, err error) {
	if c.Request().Header.Get("fleet-lock-protocol") != "true" {
		return m, exchange.Invalid("fleet-lock-protocol", "A request has the header fleet-lock-protocol: true.")
	}
	if err := exchange.CheckEncoding(c.Request()); err != nil {
		return m, err
	}
	data, err := d.Bodies.Receive(c, d.Config.BodyBytes)
	if err != nil {
		return m, err
	}
	d.Bodies.Release(c)
	var body struct {
		Params machine `json:"client_params"`
	}
	if json.Unmarshal(data, &body) != nil {
		return m, exchange.Invalid("", `The body is {"client_params":{"id":"…","group":"…"}}.`)
	}
	m = body.Params
	if !fsm.ValidName(m.ID) {
		return m, exchange.Invalid("id", "The id of a machine is 1 to 512 bytes of UTF-8 without control characters.")
	}
	if !group.MatchString(m.Group) {
		return m, exchange.Invalid("group", "The name of a group is 1 to 256 letters, digits, dots and dashes.")
	}
	return m, nil
}

func (m *machine) semaphore() string { return prefix + m.Group }

// session returns the derived id of the machine's session. The name of a group has no slash, so the
// hashed text names one machine alone.
func (m *machine) session() uint64 {
	sum := sha256.Sum256([]byte(m.semaphore() + "/" + m.ID))
	return binary.BigEndian.Uint64(sum[:]) | fsm.DerivedSessions
}

// render sends a refusal: its native status, the code for programs and a sentence for people.
func (d *dialect) render(c echo.Context, err error) error {
	p := d.Replies.LoggedProblem(c, err)
	p.SetRetryAfter(c.Response().Header())
	out := append(exchange.AppendText([]byte(`{"kind":`), p.Code), `,"value":`...)
	return d.Replies.Send(c, p.Status, "application/json", append(exchange.AppendText(out, p.Detail), '}'))
}

package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// kind is one row of the table of problems: everything that this API refuses
// with is one of them.
type kind struct {
	status     int
	title      string
	retryAfter string // seconds, "" none
}

// kinds is the table, by code (the slug).
var kinds = map[string]kind{
	"invalid-request":      {400, "The request is not valid", ""},
	"forbidden":            {403, "Not allowed", ""},
	"unknown-semaphore":    {404, "No such semaphore", ""},
	"unknown-session":      {404, "No such session", ""},
	"unknown-member":       {404, "No such member", ""},
	"not-held":             {404, "Not held", ""},
	"unknown-route":        {404, "No such route", ""},
	"method-not-allowed":   {405, "Not a method of this route", ""},
	"request-timeout":      {408, "The body came too slowly", ""},
	"unavailable":          {409, "Not available", "1"},
	"never":                {409, "More than could ever be granted", ""},
	"hierarchy":            {409, "Against the order of levels", ""},
	"lease-exists":         {409, "Held or asked for otherwise", ""},
	"session-exists":       {409, "The session exists and differs", ""},
	"overflow":             {409, "Out of range", ""},
	"member-refused":       {409, "The change of members is refused", ""},
	"level-too-low":        {409, "The feature level of the cluster is too low", ""},
	"level-unknown":        {409, "Not every member knows the feature level", ""},
	"no-successor":         {409, "Nobody can take over", ""},
	"deleted":              {410, "Deleted", ""},
	"expired-session":      {410, "The session has expired", ""},
	"revoked":              {410, "Revoked", ""},
	"over":                 {410, "Granted, and over since", ""},
	"history-gone":         {410, "Events are gone", ""},
	"precondition-failed":  {412, "Not what was expected", ""},
	"too-large":            {413, "Too large", ""},
	"unsupported-encoding": {415, "Unsupported encoding", ""},
	"wrong-host":           {421, "Another host's name", ""},
	"key-reused":           {422, "The key was used for another request", ""},
	"limit-reached":        {429, "A limit is reached", "1"},
	"internal":             {500, "A fault of this node", ""},
	"no-leader":            {503, "No leader", "1"},
	"behind":               {503, "This node is behind", "1"},
	"not-applied":          {503, "Not applied", "1"},
	"overloaded":           {503, "Overloaded", "1"},
	"draining":             {503, "Shutting down", "1"},
	"storage-full":         {503, "Storage full", "10"},
	"states-differ":        {503, "The members' states differ", "10"},
	"outcome-unknown":      {504, "The outcome is unknown", ""},
}

// refusal is how a result code of the state machine is told.
type refusal struct {
	code   string // of kinds; "" for the answers, which are no refusals
	detail func(r *fsm.Result) string
}

// refusals has a row for every code of the state machine.
var refusals = map[fsm.Code]refusal{
	fsm.OK:               {},
	fsm.Waiting:          {},
	fsm.NothingReady:     {},
	fsm.Malformed:        {"invalid-request", plain("The state machine can't read this request.")},
	fsm.InvalidCount:     {"invalid-request", plain("A count is at least 1.")},
	fsm.UnknownSemaphore: {"unknown-semaphore", plain("No semaphore has this name. Create it with PUT /v1/semaphores/{name}.")},
	fsm.UnknownSession:   {"unknown-session", plain("No session has this id: it was ended, or never opened.")},
	fsm.ExpiredSession:   {"expired-session", plain("The session was not renewed in time. All that it held is released; open another one.")},
	fsm.Revoked:          {"revoked", plain("An operator took this away, see reason.")},
	fsm.Never:            {"never", plain("More permits were asked for than the semaphore has. Ask for fewer, or raise its permits.")},
	fsm.LeaseExists:      {"lease-exists", plain("The session holds or waits for this semaphore already, with another count or list. Release that first, or use another session.")},
	fsm.Hierarchy:        {"hierarchy", hierarchy},
	fsm.Unavailable:      {"unavailable", plain("Too few permits are available, or others wait before. Try again, or wait for it.")},
	fsm.AlreadyExists:    {"precondition-failed", plain("A semaphore of this name exists, and the request was to create a new one only.")},
	fsm.EpochMismatch:    {"precondition-failed", plain("The semaphore of this name is not the one that was meant: it has another epoch.")},
	fsm.VersionMismatch:  {"precondition-failed", plain("The settings of this semaphore were changed: they have another version than the one that was meant.")},
	fsm.Overflow:         {"overflow", plain("A count would leave the range of 64-bit integers. Nothing was changed.")},
	fsm.SessionExists:    {"session-exists", plain("A session of this id lives, and holds other leases or waits.")},
	fsm.SessionIDTaken:   {"not-applied", plain("The id drawn for a new session is in use. Nothing was done; try again.")},
	fsm.LimitReached:     {"limit-reached", plain("A configured limit is reached, see rule. Nothing was changed.")},
	fsm.KeyReused:        {"key-reused", plain("This Idempotency-Key was used with another request. Draw a new key for each request.")},
	fsm.Deleted:          {"deleted", plain("The semaphore was deleted while the request waited for it.")},
	fsm.NotHeld:          {"not-held", plain("The session holds no lease of this semaphore.")},
	fsm.Withdrawn:        {"unavailable", plain("The waiting request was withdrawn: its lease was released, or its session ended, by another call.")},
	fsm.MixedLevels:      {"invalid-request", plain(`The semaphores of an "all" request have the same level, or none of them has one.`)},
	fsm.Over:             {"over", plain(overDetail)},
	fsm.PermitsRequired:  {"invalid-request", plain("The semaphore does not exist yet: a new one needs permits.")},
}

func plain(text string) func(*fsm.Result) string {
	return func(*fsm.Result) string { return text }
}

func hierarchy(r *fsm.Result) string {
	if r.Rule == fsm.RuleWaits {
		return "The session waits for another semaphore with a level, and may wait for one such at a time."
	}
	return "The level asked for is not below the lowest level that the session holds."
}

// failure is how an error of the cluster node, or one of our own, is told.
type failure struct {
	err    error
	code   string
	detail string
}

// Errors of our own that need no more than a row.
var (
	errUnknownRoute = errors.New("unknown route")
	errOrigin       = errors.New("foreign origin")
	errEncoding     = errors.New("compressed body")
	errInternal     = errors.New("internal")
)

// failures has a row for every error that the node's methods answer.
var failures = []failure{
	{cluster.ErrNoLeader, "no-leader", "The cluster has no leader at the moment, so nothing was done. It is safe to try again."},
	{cluster.ErrBehind, "behind", "This node's own state has not come to the index that the read asks for, see index for the one it has. Try again, or at another node."},
	{cluster.ErrNotApplied, "not-applied", "The request was not carried out and never will be. It is safe to try again."},
	{cluster.ErrDraining, "draining", "This node is shutting down. Nothing that lasts was done; try again at another node."},
	{cluster.ErrStorageFull, "storage-full", "The cluster's storage is nearly full: it takes only what keeps or ends leases, and no changes at all while just its reserve is left. Nothing was done."},
	{cluster.ErrSplitState, "states-differ", "The members' states differ and none is a majority's, so no changes are taken and no lease ends. /readyz?verbose names the members; an operator must decide."},
	{cluster.ErrOverloaded, "overloaded", "Too many requests wait to be carried out. Nothing was done; try again more slowly."},
	{cluster.ErrOutcomeUnknown, "outcome-unknown", "It may have been done. Ask again with the same Idempotency-Key, or look."},
	{cluster.ErrHistoryGone, "history-gone", "Events after this one are not kept on this node any more. Read the state anew, and follow from its index."},
	{cluster.ErrNotTried, "not-applied", "Not tried, since an operation before it in the batch could not be carried out. It is safe to try again."},
	{cluster.ErrCatchingUp, "outcome-unknown", "The member was added and is still catching up. It gets its vote by itself."},
	{cluster.ErrBelowLevel, "level-too-low", "This needs a higher feature level than the cluster has. Upgrade every member, and then raise the level."},
	{cluster.ErrLevelUnknown, "level-unknown", "Not every member knows this feature level, see reason. Upgrade those, and try again."},
	{cluster.ErrLastVoter, "member-refused", "The only member with a vote can't be removed."},
	{cluster.ErrMemberInvalid, "member-refused", "The id or the address is taken or can't be used, or no majority would be left, see reason."},
	{cluster.ErrNoTarget, "no-successor", "No other voting member, or not the one that was named, can take the leadership over now."},
	{context.DeadlineExceeded, "outcome-unknown", "No answer came in time. It may have been done."},
	{errUnknownRoute, "unknown-route", "This path is not part of the API. Names in a path are percent-encoded, and trailing slashes count."},
	{errOrigin, "forbidden", "The request comes from a web page of another origin, which this node does not allow. An operator lists origins with --cors-allow."},
	{errEncoding, "unsupported-encoding", "Send the body uncompressed, without Content-Encoding."},
	{errInternal, "internal", "This node could not handle the request. Its log says more."},
}

// problemOf tells any error as a problem.
func problemOf(err error) *problem {
	var known *problem
	if errors.As(err, &known) {
		return known
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			p := newProblem(f.code, f.detail)
			if errors.Is(err, cluster.ErrMemberInvalid) || errors.Is(err, cluster.ErrLevelUnknown) {
				p.Reason = err.Error() // written for people, and names ids and addresses only
			}
			return p
		}
	}
	var routed *echo.HTTPError
	if errors.As(err, &routed) {
		switch routed.Code {
		case http.StatusNotFound:
			return problemOf(errUnknownRoute)
		case http.StatusMethodNotAllowed:
			return newProblem("method-not-allowed", "This route does not take this method; Allow lists those that it takes.")
		}
	}
	return problemOf(errInternal)
}

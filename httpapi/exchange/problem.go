package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// kind is a row of the table of problems. Each refusal of the native API has one kind.
type kind struct {
	status     int
	title      string
	retryAfter string // seconds; "": no Retry-After
	meaning    string // as in docs/api.md
}

// kinds is the table of problems. The key is the code: the last part of the problem's type.
var kinds = map[string]kind{
	"invalid-request":      {400, "The request is not valid", "", "`field` names the member or parameter, `detail` its valid values"},
	"unauthenticated":      {401, "No valid token", "", "no valid token, see Tokens; `WWW-Authenticate` names the forms"},
	"forbidden":            {403, "Not allowed", "", "the identity's scope or prefixes do not allow it, see Tokens; or a page of another origin"},
	"unknown-semaphore":    {404, "No such semaphore", "", "no semaphore has this name"},
	"unknown-session":      {404, "No such session", "", "ended by its client, forgotten, or never there"},
	"unknown-group":        {404, "No such group", "", "no lease or request names the group, and it has no own limit"},
	"unknown-item":         {404, "No such item", "", "no item has this name; `index` is its delete's, if remembered"},
	"unknown-member":       {404, "No such member", "", "of the cluster"},
	"not-lost":             {404, "Not lost", "", "the semaphore has no lost hold of this token, or only another identity may free it"},
	"not-held":             {404, "Not held", "", "neither held nor waited for"},
	"unknown-route":        {404, "No such route", "", "no route has this path"},
	"method-not-allowed":   {405, "Not a method of this route", "", "`Allow` lists the methods"},
	"request-timeout":      {408, "The body came too slowly", "", "the body did not arrive in time; no effect"},
	"unavailable":          {409, "Not available", "1", "not free now; or (`\"reason\":\"withdrawn\"`) the waiting request was withdrawn by another call"},
	"never":                {409, "More than could ever be granted", "", "more than the semaphore could ever grant"},
	"hierarchy":            {409, "Against the order of levels", "", "against the order of levels, see `rule`"},
	"lease-exists":         {409, "Held or requested differently", "", "held or waited for with another count or list"},
	"session-exists":       {409, "The session exists and differs", "", "restore of a session that lives and differs"},
	"overflow":             {409, "Out of range", "", "a count would leave 64 bits, 2^20 with slots, or 2^36 in a group without a number in all"},
	"line-full":            {409, "The line is full", "", "as many requests wait in the line as `max_waiting` allows"},
	"superseded":           {409, "Superseded", "", "a newer request took the place of the waiting one in a full line"},
	"no-total":             {409, "No permits in all", "", "`up`, `down`, `value` and wait lists of a semaphore with `\"permits\":null`"},
	"slots-needed":         {409, "Slots are needed", "", "restore of a lease of a semaphore with slots, which names other than `count` slots"},
	"slot-taken":           {409, "A slot is taken", "", "restore of a lease whose slot another lease has, or that has not come back"},
	"requests-waiting":     {409, "Requests wait", "", "`groups`, and `permits` to or from `null`, change only while no request waits"},
	"other-cell":           {409, "Another cell", "", "of a [proxy of cells](cells.md): no single cell has the `names` and the session, or the request is about a whole cluster; no effect"},
	"item-differs":         {409, "The item differs", "", "an item is not as the request needs it, see `rule`"},
	"not-leader":           {409, "Another node leads", "", "a restore on a node that could not take over from the leader, which `leader` and `peer` name; no effect"},
	"member-refused":       {409, "The change of members is refused", "", "a change of members, see `reason`"},
	"level-too-low":        {409, "The feature level of the cluster is too low", "", "the request needs a higher feature level than the cluster has"},
	"level-unknown":        {409, "Not every member knows the feature level", "", "a raise of the level, see `reason`"},
	"no-successor":         {409, "No member can take over", "", "no member can take over the leadership"},
	"deleted":              {410, "Deleted", "", "the semaphore was deleted during the wait"},
	"expired-session":      {410, "The session has expired", "", "not renewed in time"},
	"revoked":              {410, "Revoked", "", "by an operator, or after `max_hold`, see `reason`"},
	"over":                 {410, "Granted, and ended since", "", "the repeat of a key whose lease or session is over since"},
	"history-gone":         {410, "Events are gone", "", "events that are not kept, or never were"},
	"precondition-failed":  {412, "A precondition failed", "", "another epoch or ETag, it exists, or a PUT with `If-Match` found no semaphore"},
	"too-large":            {413, "Too large", "", "the body, see `limit`"},
	"unsupported-encoding": {415, "Unsupported encoding", "", "a compressed body"},
	"wrong-host":           {421, "Another host's name", "", "`Host` is no name of this node, see Browsers; or the node is of another [cell](cells.md) than the sender's file says"},
	"backup-refused":       {422, "The backup is refused", "", "a restore of what is no whole and sound backup, or of another cluster, see `reason`; no effect"},
	"key-reused":           {422, "The key was used for another request", "", "an Idempotency-Key with another request"},
	"limit-reached":        {429, "A limit is reached", "1", "`rule` and `detail` name the limit, `limit` is its value; no effect"},
	"internal":             {500, "A fault of this node", "", "a fault of the node; its log has the details"},
	"no-leader":            {503, "No leader", "1", "no leader was found within 5 s; no effect"},
	"behind":               {503, "This node is behind", "1", "a read's index has not come to this node within 5 s; `index` is the node's own"},
	"not-applied":          {503, "Not applied", "1", "no effect"},
	"overloaded":           {503, "Overloaded", "1", "the queue of the log is full; no effect: retry more slowly, see Overload"},
	"draining":             {503, "Shutting down", "1", "the node is stopping; no effect: retry at another node"},
	"storage-full":         {503, "Storage full", "10", "no effect. Renewals, releases and ends are taken until the disk's last reserve; then no lease ends"},
	"states-differ":        {503, "The members' states differ", "10", "the members' states differ without a majority; no effect. `/readyz?verbose` names them"},
	"outcome-unknown":      {504, "The outcome is unknown", "", "it may have had its effect: repeat it with the same Idempotency-Key"},
}

// refusal is the problem for a result code of the state machine.
type refusal struct {
	code   string // a key of kinds; "" for a success
	detail func(r *fsm.Result) string
}

// refusals has a row for each code of the state machine.
var refusals = map[fsm.Code]refusal{
	fsm.OK:               {},
	fsm.Waiting:          {},
	fsm.NothingReady:     {},
	fsm.Malformed:        {"invalid-request", malformed},
	fsm.InvalidCount:     {"invalid-request", plain("A count is a whole number from 1 to 9223372036854775807, of a receipt from 0 to 9007199254740992.")},
	fsm.UnknownSemaphore: {"unknown-semaphore", plain("No semaphore has this name. Create it with PUT /v1/semaphores/{name}.")},
	fsm.UnknownSession:   {"unknown-session", plain("No session has this id: it was ended, or never opened.")},
	fsm.ExpiredSession:   {"expired-session", plain("The session was not renewed in time, and everything it held is released. Open another one.")},
	fsm.Revoked:          {"revoked", revoked},
	fsm.Never:            {"never", never},
	fsm.LeaseExists:      {"lease-exists", plain("The session holds or waits for this semaphore already, with another count or list. Release that first, or use another session.")},
	fsm.Hierarchy:        {"hierarchy", hierarchy},
	fsm.Unavailable:      {"unavailable", unavailable},
	fsm.AlreadyExists:    {"precondition-failed", plain("A semaphore of this name exists, and the request was to create a new one only.")},
	fsm.EpochMismatch:    {"precondition-failed", plain("The semaphore of this name has another epoch than the request names: it was deleted and created again.")},
	fsm.VersionMismatch:  {"precondition-failed", plain("The settings of this semaphore have another version than the request names: they were changed since.")},
	fsm.Overflow:         {"overflow", plain("A count would leave its range: permits, available and held, up to 9223372036854775807; with slots up to 1048576, 1024 in a lease; in a group of a semaphore with \"permits\":null up to 68719476736. The request had no effect.")},
	fsm.SessionExists:    {"session-exists", plain("A session of this id lives, and holds other leases or waits.")},
	fsm.SessionIDTaken:   {"not-applied", plain("The id drawn for a new session is in use. The request had no effect; try again.")},
	fsm.LimitReached:     {"limit-reached", limitReached},
	fsm.KeyReused:        {"key-reused", plain("This Idempotency-Key was used with another request. Draw a new key for each request.")},
	fsm.Deleted:          {"deleted", plain("The semaphore was deleted while the request waited for it.")},
	fsm.NotHeld:          {"not-held", plain("The session holds no lease of this semaphore.")},
	fsm.Withdrawn:        {"unavailable", plain("The waiting request was withdrawn: its lease was released, or its session ended, by another call.")},
	fsm.MixedLevels:      {"invalid-request", plain(`The semaphores of an "all" request have the same level, or no level.`)},
	fsm.Over:             {"over", plain(overDetail)},
	fsm.PermitsRequired:  {"invalid-request", plain("The semaphore does not exist yet: a new one needs permits.")},
	fsm.ItemDiffers:      {"item-differs", itemDiffers},
	fsm.LineFull:         {"line-full", plain("As many requests wait in the line as the semaphore's max_waiting allows. The request had no effect.")},
	fsm.Superseded:       {"superseded", plain("The line was full, and a newer request took the place of this one.")},
	fsm.NoTotal:          {"no-total", plain("The semaphore has no permits in all, only limits of its groups, so that none can be added, taken or set without a lease.")},
	fsm.NotLost:          {"not-lost", plain("The semaphore has no lost hold of this token: it came back, or was freed, or only another identity may free it.")},
	fsm.SlotsNeeded:      {"slots-needed", plain("The semaphore has slots, so that each of its leases names as many different slots as it has permits.")},
	fsm.SlotTaken:        {"slot-taken", plain("Another lease has one of these slots, or it has not come back yet. The request had no effect.")},
	fsm.RequestsWaiting:  {"requests-waiting", plain("Requests wait for the semaphore. Its groups, and whether its permits are null, can change only while none does.")},
}

// conflict is a combination of members that the state machine refuses.
type conflict struct{ field, detail string }

// conflicts has the conflict for each rule with which the state machine refuses members.
var conflicts = map[fsm.Rule]conflict{
	fsm.RuleGroup:    {"group", "The semaphore has no groups, so that a request names none."},
	fsm.RulePerGroup: {"per_group", "A limit per_group needs groups."},
	fsm.RulePermits:  {"permits", "Permits are a whole number from 0 to 9223372036854775807; null needs groups and per_group."},
	fsm.RulePaused:   {"paused", "A semaphore whose permits are null can't be paused: give single groups a limit of 0."},
	fsm.RuleWhenFull: {"when_full", "A rule when_full needs max_waiting."},
	fsm.RuleWindow:   {"window", "A window goes with none of slots, cooldown, on_lost and max_hold: leases hold nothing in it."},
	fsm.RuleSlots:    {"slots", "A semaphore whose permits are null has no slots."},
	fsm.RulePools:    {"semaphores", `An "all" request has one member at most whose semaphore has groups and a number of permits.`},
}

func malformed(r *fsm.Result) string {
	if row, ok := conflicts[r.Rule]; ok {
		return row.detail
	}
	return "The state machine can't read this request."
}

func unavailable(r *fsm.Result) string {
	why := r.Why()
	switch r.Rule {
	case fsm.RulePaused:
		return Paused(why.Reason)
	case fsm.RuleGroupLimit:
		return UsesAll(why.Group, why.Used, why.Limit)
	case fsm.RuleOtherGroups:
		return "Permits are available, and other groups that use less come first."
	}
	return "Too few permits are available, or other requests wait before this one. Try again, or ask with a wait."
}

// Paused says why grants stop.
func Paused(reason string) string {
	return "The semaphore is paused: " + strings.TrimSuffix(reason, ".") + "."
}

// UsesAll says how much of its limit a group uses.
func UsesAll(group string, used, limit int64) string {
	return fmt.Sprintf("%s uses %d of its %d.", titleOf(group), used, limit)
}

// titleOf returns the first words of a sentence about a group.
func titleOf(group string) string {
	if group == "" {
		return "The empty group"
	}
	return "Group " + group
}

func never(r *fsm.Result) string {
	why := r.Why()
	if r.Rule == fsm.RuleGroupLimit {
		return fmt.Sprintf("%s may use %d at a time. Ask for fewer, or raise its limit.", titleOf(why.Group), why.Limit)
	}
	if why.Full == 0 {
		return "The semaphore has no permits, and no release could free one, so that no request waits for it: raise its permits. " +
			"To make requests wait instead, leave the permits as they are and pause the semaphore."
	}
	return "More permits were asked for than the semaphore has. Ask for fewer, or raise its permits."
}

// revoked returns a sentence about the reason of a revocation.
func revoked(r *fsm.Result) string {
	if r.Why().Reason == fsm.CauseMaxHold.String() {
		return "It was held for the longest time that the semaphore allows, its max_hold."
	}
	return "An operator revoked this, see reason."
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

func itemDiffers(r *fsm.Result) string {
	switch r.Rule {
	case fsm.RuleAbsent:
		return "There is no item of this name."
	case fsm.RuleHeld:
		return "Another session holds this item."
	case fsm.RuleDelay:
		return "The last holder's session ended, and no session may acquire this item before its delay is over."
	case fsm.RuleNotHolder:
		return "The session does not hold this item."
	}
	return "The item has another version than the request names: it was changed since."
}

// identityLimits describes the limits of one identity.
var identityLimits = map[fsm.Rule]string{
	fsm.RuleOwnerSessions: "sessions, including the sessions of single leases and waits",
	fsm.RuleOwnerLeases:   "leases, including the leases that its waiting requests may become",
	fsm.RuleOwnerWaiting:  "waiting requests, where each semaphore of a list counts",

	fsm.RuleOwnerSemaphores: "semaphores that it made, half of what all may have",
	fsm.RuleOwnerNotices:    "notices, half of what all may have",
	fsm.RuleOwnerItems:      "items that it made or made longer, half of what all may have",
	fsm.RuleOwnerItemBytes:  "bytes of items that it made or made longer, half of what all may have",
	fsm.RuleOwnerReturns:    "leases and records of permits that come back later before it gets one more of these: half of the leases that all may have",
	fsm.RuleOwnerOwnLimits:  "groups with limits that it gave them, half of what all may have",
}

// fixedLimits describes the limits that can't be configured.
var fixedLimits = map[fsm.Rule]string{
	fsm.RuleItems: "There are as many items as a cluster may have: 1,000,000, including deleted ones whose delay is not over. " +
		"The request had no effect.",
	fsm.RuleItemBytes:    "The items take as much memory as they may: 256 MiB. The request had no effect.",
	fsm.RuleSessionItems: "The session holds as many items as a session may: 4,096. The request had no effect.",
	fsm.RuleOwnLimits:    "There are as many groups with limits of their own as a cluster may have: 100,000. The request had no effect.",
}

func limitReached(r *fsm.Result) string {
	if text, ok := fixedLimits[r.Rule]; ok {
		return text
	}
	if bounded, known := identityLimits[r.Rule]; known {
		return fmt.Sprintf("This identity may have %d %s. The request had no effect.", r.Why().Limit, bounded)
	}
	return "A configured limit is reached: " + r.Rule.String() + ". The request had no effect."
}

// failure is the problem for an error of the cluster node or of this package.
type failure struct {
	err    error
	code   string
	detail string
}

// Errors whose problems have no further members.
var (
	// ErrUnknownRoute refuses a path that no route has.
	ErrUnknownRoute = errors.New("unknown route")
	// ErrForeignOrigin refuses a request of a web page from another origin.
	ErrForeignOrigin = errors.New("foreign origin")
	// ErrInternal stands for a fault of this program that was logged already.
	ErrInternal = errors.New("internal")

	errEncoding = errors.New("compressed body")
)

// failures has a row for each error that the node's methods return.
var failures = []failure{
	{outcome.ErrNoLeader, "no-leader", "The cluster has no leader at the moment, so the request had no effect. It is safe to try again."},
	{outcome.ErrBehind, "behind", "This node's state has not reached the index that the read requires; index is the index that it has. Try again, or use another node."},
	{outcome.ErrNotApplied, "not-applied", "The request was not carried out and never will be. It is safe to try again."},
	{outcome.ErrDraining, "draining", "This node is shutting down. The request had no lasting effect; try again at another node."},
	{outcome.ErrStorageFull, "storage-full", "The cluster's storage is nearly full. It accepts only requests that keep or end leases, and no changes at all once only its reserve is left. The request had no effect."},
	{outcome.ErrSplitState, "states-differ", "The states of the members differ and no majority agrees on one, so the cluster accepts no changes and ends no leases. /readyz?verbose names the members; an operator must decide."},
	{outcome.ErrOverloaded, "overloaded", "Too many requests wait to be carried out. The request had no effect; try again more slowly."},
	{outcome.ErrOutcomeUnknown, "outcome-unknown", "The request may have been carried out. Repeat it with the same Idempotency-Key, or read the state."},
	{outcome.ErrHistoryGone, "history-gone", "Events after this one are gone: a node keeps only the latest, and none from before a restore. Read the state again, and follow from its index."},
	{outcome.ErrNotTried, "not-applied", "Not tried, since an operation before it in the batch could not be carried out. It is safe to try again."},
	{outcome.ErrCatchingUp, "outcome-unknown", "The member was added and is still catching up. It gets its vote once it has caught up."},
	{outcome.ErrBelowLevel, "level-too-low", "This needs a higher feature level than the cluster has. Upgrade every member, and then raise the level."},
	{outcome.ErrLevelUnknown, "level-unknown", "Not every member knows this feature level, see reason. Upgrade the other members, and try again."},
	{outcome.ErrNotLeader, "not-leader", "Only the node that leads takes this request, see leader, and this node could not take over. The request had no effect."},
	{outcome.ErrBackupRefused, "backup-refused", "The body is no whole and sound backup that this version can read, or of another cluster, see reason. The request had no effect."},
	{outcome.ErrRestoring, "limit-reached", "Another backup is being restored. The request had no effect."},
	{outcome.ErrLastVoter, "member-refused", "The only member with a vote can't be removed."},
	{outcome.ErrMemberInvalid, "member-refused", "The id or the address is taken or can't be used, or no majority would be left, see reason."},
	{outcome.ErrNoTarget, "no-successor", "No other voting member, or not the named one, can take over the leadership now."},
	{context.DeadlineExceeded, "outcome-unknown", "The reply did not come in time. The request may have been carried out."},
	{ErrUnknownRoute, "unknown-route", "This path is not part of the API. Trailing slashes count. A slash in a name is written %2F; a proxy may have decoded it."},
	{ErrForeignOrigin, "forbidden", "The request comes from a web page of another origin, which this node does not allow. An operator lists origins with --cors-allow."},
	{errEncoding, "unsupported-encoding", "Send the body uncompressed, without Content-Encoding."},
	{access.ErrNoToken, "unauthenticated", "This node needs a token: send Authorization: Bearer TOKEN, or the token as the password of Basic authentication."},
	{access.ErrUnknownToken, "unauthenticated", "The token is not valid, or is no longer. An operator has the file of tokens."},
	{ErrInternal, "internal", "This node could not handle the request. Its log says more."},
}

// ProblemOf translates an error into a problem: "internal" for an error without a row.
func ProblemOf(err error) *Problem {
	var known *Problem
	if errors.As(err, &known) {
		return known
	}
	var denied *access.Denied
	if errors.As(err, &denied) {
		p := NewProblem("forbidden", denied.Error())
		p.Semaphore = denied.Semaphore
		return p
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			p := NewProblem(f.code, f.detail)
			if errors.Is(err, outcome.ErrMemberInvalid) || errors.Is(err, outcome.ErrLevelUnknown) || errors.Is(err, outcome.ErrBackupRefused) {
				p.Reason = err.Error() // the text has ids and addresses, no secrets
			}
			return p
		}
	}
	var routed *echo.HTTPError
	if errors.As(err, &routed) {
		switch routed.Code {
		case http.StatusNotFound:
			return ProblemOf(ErrUnknownRoute)
		case http.StatusMethodNotAllowed:
			return NewProblem("method-not-allowed", "This route does not take this method; Allow lists the methods of the route.")
		}
	}
	return ProblemOf(ErrInternal)
}

// Problem is a refusal in the form of RFC 9457. Handlers return it as an error, which Replies.SendProblem sends. A
// batch puts it into a result.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`

	Instance string `json:"instance,omitempty"` // names the request

	Field       string   `json:"field,omitempty"` // member or parameter that is wrong
	Semaphore   string   `json:"semaphore,omitempty"`
	Item        string   `json:"item,omitempty"`
	Names       []string `json:"names,omitempty"` // names that belong to different cells
	Session     string   `json:"session,omitempty"`
	Reason      string   `json:"reason,omitempty"` // given by an operator
	Rule        string   `json:"rule,omitempty"`
	Count       *int64   `json:"count,omitempty"`   // the count of the request
	Holding     *int64   `json:"holding,omitempty"` // how many permits the session holds or waits for
	Permits     *int64   `json:"permits,omitempty"`
	Most        *int64   `json:"most,omitempty"` // the largest count that could ever be granted
	Available   *int64   `json:"available,omitempty"`
	QueueLength *int64   `json:"queue_length,omitempty"`
	Level       *int32   `json:"level,omitempty"`
	LowestLevel *int32   `json:"lowest_level,omitempty"`
	Epoch       *uint64  `json:"epoch,omitempty"` // the current epoch of the semaphore
	Settings    *uint64  `json:"settings,omitempty"`
	Limit       *int64   `json:"limit,omitempty"`
	Group       string   `json:"group,omitempty"`
	Used        *int64   `json:"used,omitempty"`            // how many permits of the limit the group uses
	Version     *uint64  `json:"version,omitempty"`         // version of the item
	DelayMS     *int64   `json:"delay_ms,omitempty"`        // time until a session may acquire the item
	AvailableIn *int64   `json:"available_in_ms,omitempty"` // time until a window has given enough permits back
	Index       *uint64  `json:"index,omitempty"`           // index of this node's state, or of an item, to wait for a later change
	Leader      string   `json:"leader,omitempty"`          // id of the leader
	Peer        string   `json:"peer,omitempty"`            // address at which the other nodes reach the leader
}

// Error returns the code and the detail, for logs.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// RetryAfter returns the seconds of the Retry-After header, or "" if a repeat is not useful.
func (p *Problem) RetryAfter() string {
	if p.AvailableIn != nil {
		return strconv.FormatInt((*p.AvailableIn+999)/1000, 10)
	}
	return kinds[p.Code].retryAfter
}

// SetRetryAfter sets the Retry-After header.
func (p *Problem) SetRetryAfter(header http.Header) {
	if retry := p.RetryAfter(); retry != "" {
		header.Set("Retry-After", retry)
	}
}

// ProblemPage returns the text that the type of a problem, a URL, leads to.
func ProblemPage(code string) (page string, known bool) {
	k, known := kinds[code]
	if !known {
		return "", false
	}
	page = fmt.Sprintf("%s (status %d)\n%s.\n\nMeaning: %s.\n", code, k.status, k.title, k.meaning)
	if k.retryAfter != "" {
		page += "Try again after " + k.retryAfter + " s or later, as Retry-After has it.\n"
	}
	return page + "\nThe detail of the reply has more. docs/api.md of this version describes the API.\n", true
}

// LimitReached returns the refusal of a request that would exceed a limit of this node.
func LimitReached(rule string, limit int64, detail string) *Problem {
	p := NewProblem("limit-reached", detail)
	p.Rule, p.Limit = rule, &limit
	return p
}

// NewProblem returns a problem of the kind with this code.
func NewProblem(code, detail string) *Problem {
	k := kinds[code]
	return &Problem{Type: "/problems/" + code, Title: k.title, Status: k.status, Detail: detail, Code: code}
}

// Invalid refuses a member or a parameter, which the detail mentions too. field may be "".
func Invalid(field, detail string) *Problem {
	shown := strings.ToValidUTF8(Ellipsis(field), "")
	if plain := strings.NewReplacer("-", " ", "_", " "); !strings.Contains(strings.ToLower(plain.Replace(detail)), strings.ToLower(plain.Replace(shown))) {
		detail = shown + ": " + detail
	}
	p := NewProblem("invalid-request", detail)
	p.Field = shown
	return p
}

const overDetail = "The first request with this key got a session or leases, and some or all of them have ended since. " +
	"Use a new key to ask again."

// OverSince refuses the repeat of a request whose lease or session has ended in the meantime. A success would report a
// lease that the client no longer has.
func OverSince(r *fsm.Result) *Problem {
	p := NewProblem("over", overDetail)
	if r.Session != 0 {
		p.Session = FormatSession(r.Session)
	}
	return p
}

// Refused returns the problem for a result of the state machine that is not a success.
func Refused(r *fsm.Result) *Problem {
	row := refusals[r.Code]
	if row.code == "" {
		return ProblemOf(ErrInternal) // a success code that this operation never has
	}
	p := NewProblem(row.code, row.detail(r))
	p.Semaphore, p.Reason, p.Rule = r.Subject, r.Why().Reason, r.Rule.String()
	if r.Session != 0 {
		p.Session = FormatSession(r.Session)
	}
	if r.Epoch != 0 {
		p.Epoch = &r.Epoch
	}
	describeField(p, r)
	describeCounts(p, r)
	return p
}

func describeField(p *Problem, r *fsm.Result) {
	switch r.Code {
	case fsm.InvalidCount:
		p.Field = "count"
	case fsm.PermitsRequired:
		p.Field = "permits"
	case fsm.MixedLevels:
		p.Field = "semaphores"
	case fsm.Malformed:
		p.Field, p.Rule = conflicts[r.Rule].field, ""
	}
}

// describeCounts adds the numbers that explain a refusal.
func describeCounts(p *Problem, r *fsm.Result) {
	why := r.Why()
	switch r.Code {
	case fsm.Never, fsm.Unavailable, fsm.Overflow:
		if r.Rule != fsm.RuleGroupLimit || why.Permits != 0 { // 0: there may be no number of permits in all
			p.Available, p.Permits = &why.Available, &why.Permits
		}
	case fsm.LeaseExists:
		p.Holding = &why.Holding
	case fsm.Hierarchy, fsm.MixedLevels:
		p.Level, p.LowestLevel = why.Level, why.LowestLevel
	}
	switch r.Code {
	case fsm.Never:
		p.Most = &why.Full
	case fsm.Unavailable, fsm.LineFull:
		p.QueueLength = &r.QueueLength
	case fsm.Withdrawn:
		p.Reason = "withdrawn"
	}
	if r.Asked != 0 {
		p.Count = &r.Asked
	}
	if why.Limit != 0 || r.Rule == fsm.RuleGroupLimit {
		p.Limit = &why.Limit
	}
	if p.Group = why.Group; r.Rule == fsm.RuleGroupLimit {
		p.Used = &why.Used
	}
	switch {
	case r.Code == fsm.VersionMismatch:
		p.Settings = &r.Version
	case r.Code == fsm.ItemDiffers && r.Version != 0:
		p.Version = &r.Version
	case r.Code == fsm.ItemDiffers && why.DelayMS != 0:
		p.DelayMS = &why.DelayMS
	case r.Code == fsm.Unavailable && why.DelayMS != 0:
		p.AvailableIn = &why.DelayMS
	}
}

// BadBody refuses a body that is not strict JSON.
func BadBody(f *strictjson.Fault) *Problem {
	p := NewProblem("invalid-request", "The body is not one JSON document in UTF-8: "+f.Error()+".")
	p.Field = Ellipsis(strings.ToValidUTF8(f.Field, ""))
	return p
}

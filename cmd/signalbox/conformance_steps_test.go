//go:build processes && conformance && linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
)

// conformingActor is the configuration of one actor's client.
type conformingActor struct {
	Token          string   `json:"token"`     // "": admin
	Addresses      []string `json:"addresses"` // nil: all nodes
	AttemptTimeout float64  `json:"attempt_timeout"`
	GiveUpAfter    float64  `json:"give_up_after"`
}

// conformanceStep is a step of a case; client/conformance/README.md has the meaning of each.
type conformanceStep struct {
	Do         string             `json:"do"`
	Actor      string             `json:"actor"`
	As         string             `json:"as"`
	Of         string             `json:"of"`
	Background bool               `json:"background"`
	Semaphore  *string            `json:"semaphore"`
	Semaphores []any              `json:"semaphores"`
	Session    string             `json:"session"`
	Permits    *int64             `json:"permits"`
	Level      *int32             `json:"level"`
	Metadata   *map[string]string `json:"metadata"`
	Null       map[string]bool    `json:"-"` // the members that are null
	Groups     *string            `json:"groups"`
	PerGroup   *int64             `json:"per_group"`
	Paused     *string            `json:"paused"`
	MaxWaiting *int               `json:"max_waiting"`
	WhenFull   *string            `json:"when_full"`
	HeadStart  *float64           `json:"head_start"`
	Window     *float64           `json:"window"`
	Cooldown   *float64           `json:"cooldown"`
	OnLost     *string            `json:"on_lost"`
	MaxHold    *float64           `json:"max_hold"`
	Slots      *bool              `json:"slots"`
	Group      string             `json:"group"`
	Limit      int64              `json:"limit"`
	Waiting    bool               `json:"waiting"`
	OnlyNew    bool               `json:"only_new"`
	Partial    bool               `json:"partial"`
	Count      *int64             `json:"count"`
	Value      int64              `json:"value"`
	Wait       *float64           `json:"wait"`
	TTL        float64            `json:"ttl"`
	Reason     string             `json:"reason"`
	Seconds    float64            `json:"seconds"`
	EpochOf    string             `json:"epoch_of"`
	Expect     map[string]any     `json:"expect"`
}

// UnmarshalJSON records which members are null.
func (s *conformanceStep) UnmarshalJSON(data []byte) error {
	type plain conformanceStep
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	s.Null = map[string]bool{}
	for name, text := range members {
		s.Null[name] = string(text) == "null"
	}
	return json.Unmarshal(data, (*plain)(s))
}

// held is what a lease and a session have in common.
type held interface {
	Lost() <-chan struct{}
	Err() error
}

// conformingRun is one case with the client in Go.
type conformingRun struct {
	t       *testing.T
	c       *conforming
	one     conformanceCase
	prefix  string
	restart func() error

	mu      sync.Mutex // the steps in the background
	clients map[string]*signalbox.Client
	held    map[string]held
	epochs  map[string]uint64
	waits   map[string]chan map[string]any
	cancels map[string]context.CancelFunc
}

// runGo runs the list with the client in Go: first the cases without a restart, then the cases around a restart.
func (c *conforming) runGo(t *testing.T, cases []conformanceCase) outcomes {
	t.Helper()
	c.connect(t)
	c.setup.Prefix = "go"
	var plain, others []*conformingRun
	for i, listed := range cases {
		r := &conformingRun{t: t, c: c, one: listed, prefix: fmt.Sprintf("go/%d/", i), clients: map[string]*signalbox.Client{}, held: map[string]held{},
			epochs: map[string]uint64{}, waits: map[string]chan map[string]any{}, cancels: map[string]context.CancelFunc{}}
		if slices.ContainsFunc(listed.Steps, func(s conformanceStep) bool { return s.Do == "restart" }) {
			others = append(others, r)
		} else {
			plain = append(plain, r)
		}
	}
	var arrived sync.WaitGroup // at the restart
	arrived.Add(len(others))
	restarted := sync.OnceValue(c.restart)
	for _, r := range others {
		r.restart = func() error {
			arrived.Done()
			arrived.Wait()
			return restarted()
		}
	}
	results := outcomes{}
	for _, group := range [][]*conformingRun{plain, others} {
		var mu sync.Mutex
		var work sync.WaitGroup
		turns := make(chan struct{}, max(16, len(others)))
		for _, r := range group {
			work.Go(func() {
				turns <- struct{}{}
				got := r.run()
				<-turns
				mu.Lock()
				defer mu.Unlock()
				results[r.one.Name] = got
			})
		}
		work.Wait()
	}
	return results
}

// run returns the results of the steps, encoded as JSON and decoded.
func (r *conformingRun) run() []map[string]any {
	ctx, cancel := context.WithCancel(context.Background()) // without a deadline, so that GiveUpAfter counts
	defer cancel()
	late := time.AfterFunc(time.Minute, cancel)
	defer late.Stop()
	defer func() {
		for _, client := range r.clients {
			end, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = client.Close(end)
			cancel()
		}
	}()
	var results []map[string]any
	for i := range r.one.Steps {
		step := &r.one.Steps[i]
		client := r.client(step.Actor)
		if !step.Background {
			results = append(results, r.outcome(ctx, step, client))
			continue
		}
		wait, done := context.WithCancel(ctx)
		defer done()
		outcome := make(chan map[string]any, 1)
		r.cancels[step.As], r.waits[step.As] = done, outcome
		go func() { outcome <- r.outcome(wait, step, client) }()
		results = append(results, map[string]any{})
	}
	text, err := json.Marshal(results)
	must(r.t, err)
	var plain []map[string]any
	must(r.t, json.Unmarshal(text, &plain))
	return plain
}

func (r *conformingRun) client(actor string) *signalbox.Client {
	if made := r.clients[actor]; made != nil {
		return made
	}
	account := r.one.Actors[actor]
	cfg := signalbox.Config{CA: r.c.setup.CA, InOrder: account.Addresses != nil, AttemptTimeout: seconds(account.AttemptTimeout), GiveUpAfter: seconds(account.GiveUpAfter)}
	switch account.Token {
	case "none":
	case "file":
		cfg.TokenFile = r.c.setup.TokenFile
	case "":
		cfg.Token = r.c.setup.Tokens["admin"]
	default:
		cfg.Token = r.c.setup.Tokens[account.Token]
	}
	names := account.Addresses
	if names == nil {
		names = []string{"n1", "n2", "n3"}
	}
	for _, name := range names {
		cfg.Addresses = append(cfg.Addresses, r.c.address(name))
	}
	client, err := signalbox.New(cfg)
	if err != nil {
		r.t.Error(err)
		client, _ = signalbox.New(signalbox.Config{Addresses: []string{r.c.address("n1")}})
	}
	r.clients[actor] = client
	return client
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// outcome is the result of a step, or the code of its error.
func (r *conformingRun) outcome(ctx context.Context, step *conformanceStep, client *signalbox.Client) map[string]any {
	if step.Wait != nil && *step.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seconds(*step.Wait))
		defer cancel()
	}
	result, err := r.do(ctx, step, client)
	var refusal *signalbox.Error
	switch {
	case err == nil && result == nil:
		return map[string]any{}
	case err == nil:
		return result
	case errors.Is(err, context.Canceled):
		return map[string]any{"error": "canceled"}
	case errors.Is(err, signalbox.ErrLost):
		return map[string]any{"error": "lost"}
	case errors.Is(err, signalbox.ErrClosed):
		return map[string]any{"error": "closed"}
	case errors.As(err, &refusal) && refusal.AvailableIn > 0:
		return map[string]any{"error": refusal.Code, "available_in": true}
	case errors.As(err, &refusal):
		return map[string]any{"error": refusal.Code}
	case errors.Is(err, signalbox.ErrUnavailable):
		return map[string]any{"error": "unavailable"}
	case errors.Is(err, signalbox.ErrUnreachable):
		return map[string]any{"error": "unreachable"}
	}
	return map[string]any{"error": err.Error()}
}

// do carries out a step.
func (r *conformingRun) do(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	switch step.Do {
	case "create", "put", "get", "await", "list", "delete", "up", "set", "down":
		return r.semaphore(ctx, step, client)
	case "pause-semaphore", "resume", "group", "groups", "group-limit":
		return r.group(ctx, step, client)
	case "lease", "session", "acquire", "acquire-all", "acquire-any":
		return r.acquire(ctx, step, client)
	case "settle", "lost-holds", "free-lost":
		return r.returns(ctx, step, client)
	case "join":
		return <-r.waits[step.Of], nil
	case "cancel":
		r.cancels[step.Of]()
		return nil, nil
	case "pause":
		<-time.After(seconds(step.Seconds)) // renewals go on meanwhile: that is the subject
		return nil, nil
	case "restart":
		return nil, r.restart()
	case "close-client":
		return nil, client.Close(ctx)
	case "cut":
		r.c.cutOff()
		return nil, nil
	}
	return r.end(ctx, step, client)
}

// name returns the name of a step's semaphore in this run.
func (r *conformingRun) name(step *conformanceStep) string {
	if step.Semaphore == nil || *step.Semaphore == "" {
		return ""
	}
	return r.prefix + *step.Semaphore
}

func (r *conformingRun) semaphore(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	name := r.name(step)
	var calls []signalbox.CallOption
	if step.EpochOf != "" {
		calls = append(calls, signalbox.Epoch(r.epochs[step.EpochOf]))
	}
	switch step.Do {
	case "create", "put":
		return r.make(ctx, step, client)
	case "get":
		s, err := client.Get(ctx, name)
		return shown(s), err
	case "await":
		return awaitSemaphore(ctx, step, client, name)
	case "list":
		names := []string{}
		for s, err := range client.List(ctx, name) {
			if err != nil {
				return nil, err
			}
			names = append(names, strings.TrimPrefix(s.Name, r.prefix))
		}
		return map[string]any{"names": names}, nil
	case "delete":
		return nil, client.Delete(ctx, name, calls...)
	case "up":
		value, err := client.Up(ctx, name, *step.Count, calls...)
		return map[string]any{"value": value}, err
	case "set":
		value, err := client.SetValue(ctx, name, step.Value)
		return map[string]any{"value": value}, err
	}
	options := []signalbox.DownOption{signalbox.Group(step.Group)}
	if step.HeadStart != nil {
		options = append(options, signalbox.HeadStart(seconds(*step.HeadStart)))
	}
	if step.Partial {
		options = append(options, signalbox.Partial())
	}
	take := client.Down
	if step.Wait != nil && *step.Wait == 0 {
		take = client.TryDown
	}
	taken, err := take(ctx, name, *step.Count, options...)
	return map[string]any{"granted": taken.Granted}, err
}

func (r *conformingRun) make(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	var s *signalbox.Semaphore
	var created bool
	var err error
	if step.Do == "create" {
		var options []signalbox.CreateOption
		for _, o := range step.settings() {
			options = append(options, o)
		}
		if step.Level != nil {
			options = append(options, signalbox.Level(*step.Level))
		}
		if step.Metadata != nil {
			options = append(options, signalbox.Metadata(*step.Metadata))
		}
		permits := int64(0)
		if step.Permits != nil {
			permits = *step.Permits
		}
		s, created, err = client.Create(ctx, r.name(step), permits, options...)
	} else {
		var options []signalbox.PutOption
		for _, o := range step.settings() {
			options = append(options, o)
		}
		if step.Permits != nil {
			options = append(options, signalbox.Permits(*step.Permits))
		}
		if step.Metadata != nil {
			options = append(options, signalbox.Metadata(*step.Metadata))
		} else if step.Null["metadata"] {
			options = append(options, signalbox.Metadata(nil))
		}
		if step.OnlyNew {
			options = append(options, signalbox.OnlyNew())
		}
		s, created, err = client.Put(ctx, r.name(step), options...)
	}
	if err != nil {
		return nil, err
	}
	r.epochs[step.As] = s.Epoch
	result := shown(s)
	result["created"] = created
	return result, nil
}

// settings are the optional settings of a step.
func (s *conformanceStep) settings() (options []signalbox.SettingOption) {
	if s.Null["permits"] {
		options = append(options, signalbox.NoTotal())
	}
	options = appendSetting(options, s, "groups", s.Groups, signalbox.Groups)
	options = appendSetting(options, s, "per_group", s.PerGroup, signalbox.PerGroup)
	options = appendSetting(options, s, "paused", s.Paused, signalbox.Paused)
	options = appendSetting(options, s, "max_waiting", s.MaxWaiting, signalbox.MaxWaiting)
	options = appendSetting(options, s, "when_full", s.WhenFull, signalbox.WhenFull)
	options = appendSetting(options, s, "on_lost", s.OnLost, signalbox.OnLost)
	options = appendSetting(options, s, "slots", s.Slots, signalbox.Slots)
	options = appendSetting(options, s, "window", s.Window, inSeconds(signalbox.Window))
	options = appendSetting(options, s, "cooldown", s.Cooldown, inSeconds(signalbox.Cooldown))
	options = appendSetting(options, s, "max_hold", s.MaxHold, inSeconds(signalbox.MaxHold))
	return appendSetting(options, s, "head_start", s.HeadStart, inSeconds(func(d time.Duration) signalbox.SettingOption { return signalbox.HeadStart(d) }))
}

// inSeconds makes a setting of seconds from a setting of a duration.
func inSeconds(option func(time.Duration) signalbox.SettingOption) func(float64) signalbox.SettingOption {
	return func(d float64) signalbox.SettingOption { return option(seconds(d)) }
}

// appendSetting adds a setting that the step has, or that is null.
func appendSetting[T any](options []signalbox.SettingOption, s *conformanceStep, name string, value *T, option func(T) signalbox.SettingOption) []signalbox.SettingOption {
	var none T
	switch {
	case value != nil:
		return append(options, option(*value))
	case s.Null[name]:
		return append(options, option(none))
	}
	return options
}

func shown(s *signalbox.Semaphore) map[string]any {
	if s == nil {
		return nil
	}
	result := map[string]any{"permits": s.Permits, "held": s.Held, "available": s.Available, "level": s.Level, "metadata": s.Metadata,
		"holders": s.HolderCount, "waiters": s.WaiterCount, "groups": s.Groups, "per_group": s.PerGroup, "paused": s.Paused,
		"max_waiting": s.MaxWaiting, "when_full": s.WhenFull, "head_start": s.HeadStart.Seconds(),
		"window": s.Window.Seconds(), "cooldown": s.Cooldown.Seconds(), "on_lost": cmp.Or(s.OnLost, signalbox.Release), "max_hold": s.MaxHold.Seconds(),
		"slots": s.Slots, "returning": s.Returning, "lost_count": s.LostCount}
	if s.NoTotal {
		result["permits"], result["available"] = nil, nil
	}
	return result
}

// group carries out the steps about pauses and groups.
func (r *conformingRun) group(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	name := r.name(step)
	switch step.Do {
	case "pause-semaphore":
		return nil, client.Pause(ctx, name, step.Reason)
	case "resume":
		return nil, client.Resume(ctx, name)
	case "group-limit":
		if step.Null["limit"] {
			return nil, client.ClearGroupLimit(ctx, name, step.Group)
		}
		return nil, client.SetGroupLimit(ctx, name, step.Group, step.Limit)
	case "group":
		g, err := client.GetGroup(ctx, name, step.Group)
		if err != nil {
			return nil, err
		}
		return map[string]any{"group": g.Group, "limit": g.Limit, "own": g.Own, "used": g.Used, "held": g.Held, "waiting": g.Waiting}, nil
	}
	var options []signalbox.GroupsOption
	if step.Waiting {
		options = append(options, signalbox.OnlyWaiting())
	}
	names := []string{}
	for g, err := range client.ListGroups(ctx, name, options...) {
		if err != nil {
			return nil, err
		}
		names = append(names, g.Group)
	}
	return map[string]any{"names": names}, nil
}

// returns carries out the steps about receipts and lost holds.
func (r *conformingRun) returns(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	lease, _ := r.kept(step.Of).(*signalbox.Lease)
	switch step.Do {
	case "settle":
		settled, err := lease.Settle(ctx, *step.Count)
		return map[string]any{"settled": settled}, err
	case "free-lost":
		return nil, client.FreeLost(ctx, r.name(step), lease.Token, step.Reason)
	}
	holds := []map[string]any{}
	for hold, err := range client.ListLost(ctx, r.name(step)) {
		if err != nil {
			return nil, err
		}
		holds = append(holds, map[string]any{"count": hold.Count, "group": hold.Group, "slots": append([]int{}, hold.Slots...), "comes_back": hold.BackIn != nil})
	}
	return map[string]any{"holds": holds}, nil
}

// awaitSemaphore reads a semaphore until it is as expected.
func awaitSemaphore(ctx context.Context, step *conformanceStep, client *signalbox.Client, name string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for again := time.Tick(20 * time.Millisecond); ; <-again {
		s, err := client.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		result, all := shown(s), true
		maps.DeleteFunc(result, func(member string, value any) bool {
			want, ok := step.Expect[member]
			all = all && (!ok || fmt.Sprint(value) == fmt.Sprint(want))
			return !ok
		})
		if all || ctx.Err() != nil {
			return result, nil
		}
	}
}

func (r *conformingRun) acquire(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	try := step.Wait != nil && *step.Wait == 0
	var lease *signalbox.Lease
	var err error
	switch step.Do {
	case "session":
		s, err := client.OpenSession(ctx, signalbox.SessionOptions{TTL: seconds(step.TTL)})
		if err == nil {
			r.keep(step.As, s)
		}
		return nil, err
	case "acquire-all", "acquire-any":
		return r.acquireMany(ctx, step)
	case "lease":
		options := []signalbox.LeaseOption{signalbox.TTL(seconds(step.TTL)), signalbox.Group(step.Group)}
		if step.HeadStart != nil {
			options = append(options, signalbox.HeadStart(seconds(*step.HeadStart)))
		}
		if step.Count != nil {
			options = append(options, signalbox.Count(*step.Count))
		}
		if step.EpochOf != "" {
			options = append(options, signalbox.Epoch(r.epochs[step.EpochOf]))
		}
		ask := client.Acquire
		if try {
			ask = client.TryAcquire
		}
		lease, err = ask(ctx, r.name(step), options...)
	case "acquire":
		session := r.kept(step.Session).(*signalbox.Session)
		options := []signalbox.AcquireOption{signalbox.Group(step.Group)}
		if step.HeadStart != nil {
			options = append(options, signalbox.HeadStart(seconds(*step.HeadStart)))
		}
		if step.Count != nil {
			options = append(options, signalbox.Count(*step.Count))
		}
		ask := session.Acquire
		if try {
			ask = session.TryAcquire
		}
		lease, err = ask(ctx, r.name(step), options...)
	}
	if err != nil {
		return nil, err
	}
	r.keep(step.As, lease)
	return map[string]any{"count": lease.Count, "token": lease.Token, "group": lease.Group, "spent": lease.Spent(),
		"slots": append([]int{}, lease.Slots()...)}, nil
}

func (r *conformingRun) acquireMany(ctx context.Context, step *conformanceStep) (map[string]any, error) {
	session := r.kept(step.Session).(*signalbox.Session)
	var wants []signalbox.Want
	for _, want := range step.Semaphores {
		members := want.([]any)
		wants = append(wants, signalbox.Want{Name: r.prefix + members[0].(string), Count: int64(members[1].(float64))})
		if len(members) > 2 {
			wants[len(wants)-1].Group = members[2].(string)
		}
	}
	var leases []*signalbox.Lease
	var err error
	if step.Do == "acquire-all" {
		leases, err = session.AcquireAll(ctx, wants...)
	} else {
		leases = make([]*signalbox.Lease, 1)
		leases[0], err = session.AcquireAny(ctx, wants...)
	}
	if err != nil {
		return nil, err
	}
	pairs := [][]any{}
	for _, lease := range leases {
		pairs = append(pairs, []any{strings.TrimPrefix(lease.Semaphore, r.prefix), lease.Count})
		if lease.Group != "" {
			pairs[len(pairs)-1] = append(pairs[len(pairs)-1], lease.Group)
		}
	}
	return map[string]any{"leases": pairs}, nil
}

func (r *conformingRun) keep(label string, h held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[label] = h
}

func (r *conformingRun) kept(label string) held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[label]
}

// end carries out the steps about a lease or session that an earlier step has made.
func (r *conformingRun) end(ctx context.Context, step *conformanceStep, client *signalbox.Client) (map[string]any, error) {
	h := r.kept(step.Of)
	lease, _ := h.(*signalbox.Lease)
	session, _ := h.(*signalbox.Session)
	id := ""
	if lease != nil {
		id = lease.Session
	} else if session != nil {
		id = session.ID()
	}
	switch step.Do {
	case "release":
		return nil, lease.Release(ctx)
	case "close":
		return nil, session.Close(ctx)
	case "lost":
		return map[string]any{"lost": h.Err() != nil}, nil
	case "revoke":
		return nil, operator.New(client).Revoke(ctx, lease.Semaphore, id, step.Reason, 0, operator.OfGroup(lease.Group))
	case "revoke-session":
		return nil, operator.New(client).RevokeSession(ctx, id, step.Reason)
	case "end-session":
		return nil, operator.New(client).EndSession(ctx, id)
	case "await-lost":
		select {
		case <-h.Lost():
		case <-time.After(20 * time.Second):
			return nil, errors.New("not lost")
		}
		var refusal *signalbox.Error
		switch err := h.Err(); {
		case errors.Is(err, signalbox.ErrNotRenewed):
			return map[string]any{"reason": "not-renewed", "words": ""}, nil
		case errors.As(err, &refusal):
			return map[string]any{"reason": refusal.Code, "words": refusal.Reason}, nil
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("no step is called %q", step.Do)
}

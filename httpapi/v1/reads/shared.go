package reads

import (
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// The shapes that reads and operations share.

// WantCounts is {"name":count,…}, in the order of the request's list.
type WantCounts []fsm.Want

// MarshalJSON writes {"name":count,…}.
func (wants WantCounts) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, want := range wants {
		if i > 0 {
			out = append(out, ',')
		}
		out = exchange.AppendText(out, want.Semaphore)
		out = append(out, ':')
		out = strconv.AppendInt(out, want.Count, 10)
	}
	return append(out, '}'), nil
}

// wantBody is a member of a list that names a group.
type wantBody struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Count int64  `json:"count"`
}

// listBody is the list of a request: a map of counts, or a list of members if it names a group.
type listBody struct {
	Semaphores WantCounts `json:"semaphores,omitempty"`
	Members    []wantBody `json:"members,omitempty"`
}

// List sets the list.
func (b *listBody) List(wants []fsm.Want) {
	if !slices.ContainsFunc(wants, func(w fsm.Want) bool { return w.Group != "" }) {
		b.Semaphores = wants
		return
	}
	for _, w := range wants {
		b.Members = append(b.Members, wantBody{w.Semaphore, w.Group, w.Count})
	}
}

// LeaseBody is a lease, as the reply to its acquire shows it.
type LeaseBody struct {
	Session     string `json:"session"`
	Semaphore   string `json:"semaphore"`
	Group       string `json:"group,omitempty"`
	Count       int64  `json:"count"`
	Token       uint64 `json:"token"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	WaitedMS    int64  `json:"waited_ms"`
	TimesBody
	Settled *bool `json:"settled,omitempty"` // the reply to settling a receipt: it says what was asked
}

// TimesBody has what most leases don't have: the slots, and the time at which a receipt's permits come back.
type TimesBody struct {
	Slots       exchange.Slots `json:"slots,omitempty"`
	Spent       bool           `json:"spent,omitempty"`         // a receipt of what was spent in a window
	ReturnsInMS *int64         `json:"returns_in_ms,omitempty"` // of a receipt
	EndsInMS    *int64         `json:"ends_in_ms,omitempty"`    // with max_hold, whatever its session does
}

// NewTimesBody shows the times and the slots of a lease.
func NewTimesBody(g *fsm.Grant, nowMS int64) TimesBody {
	with := g.DetailsOrZero()
	body := TimesBody{Slots: with.Slots, Spent: with.DueMS != 0}
	if body.Spent {
		left := Left(with.DueMS, nowMS)
		body.ReturnsInMS = &left
	}
	if with.EndsMS != 0 {
		left := Left(with.EndsMS, nowMS)
		body.EndsInMS = &left
	}
	return body
}

// EndOf returns when a lease ends: with its session, or at endsMS if that is earlier. endsMS 0 means no earlier end.
func EndOf(deadlineMS, endsMS int64) int64 {
	if endsMS != 0 {
		return min(deadlineMS, endsMS)
	}
	return deadlineMS
}

// WaitingBody is a request that waits.
type WaitingBody struct {
	Session      string `json:"session"`
	Semaphore    string `json:"semaphore,omitempty"` // of a single request
	Group        string `json:"group,omitempty"`
	Count        int64  `json:"count,omitempty"`
	listBody            // of several at once
	Mode         string `json:"mode,omitempty"`
	Position     int64  `json:"position"`
	GroupsBefore int64  `json:"groups_before,omitempty"` // of a pool
	WaitingMS    int64  `json:"waiting_ms"`
}

// SemaphoreBody is a semaphore without its holders and waiters.
type SemaphoreBody struct {
	Name          string         `json:"name"`
	Permits       *int64         `json:"permits"` // null: limits of its groups alone
	Offset        int64          `json:"offset"`
	Held          int64          `json:"held"`
	Available     *int64         `json:"available"`
	Level         *int32         `json:"level"`
	Metadata      exchange.Pairs `json:"metadata"`
	Epoch         uint64         `json:"epoch"`
	Settings      uint64         `json:"settings"` // counts the changes of permits, level, metadata and settings
	ModifiedIndex uint64         `json:"modified_index"`
	HolderCount   int64          `json:"holder_count"`
	WaiterCount   int64          `json:"waiter_count"`
	exchange.SettingsBody
	GroupsCount *int64 `json:"groups_count,omitempty"` // in use, or with limits of their own
	Sweeping    bool   `json:"sweeping,omitempty"`     // groups still get another limit

	Returning      *int64 `json:"returning,omitempty"` // permits that no lease holds and that come back later
	NextReturnInMS *int64 `json:"next_return_in_ms,omitempty"`
	LostCount      int64  `json:"lost_count,omitempty"`
}

// LifeBody is a session without its leases and requests: the reply to a renewal.
type LifeBody struct {
	Session     string `json:"session"`
	TTLMS       int64  `json:"ttl_ms"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	OneShot     bool   `json:"one_shot"`
}

// Left returns the time from now to a deadline, never negative.
func Left(deadlineMS, nowMS int64) int64 { return max(0, deadlineMS-nowMS) }

// NewSemaphoreBody shows a semaphore.
func NewSemaphoreBody(s *fsm.SemaphoreView, nowMS int64) SemaphoreBody {
	body := SemaphoreBody{Name: s.Name, Permits: exchange.NumberOf(&s.Settings, s.Permits), Offset: s.Offset, Held: s.Held,
		Available: exchange.NumberOf(&s.Settings, s.Available), Level: s.Level, Metadata: s.Metadata, Epoch: s.Epoch,
		Settings: s.Version, ModifiedIndex: s.ModifiedIndex, HolderCount: s.Holders, WaiterCount: s.Waiters,
		SettingsBody: exchange.NewSettingsBody(&s.Settings), Sweeping: s.Sweeping}
	if s.Settings.Groups != fsm.NoGroups || s.Groups > 0 {
		groups := s.Groups
		body.GroupsCount = &groups
	}
	if s.Returns > 0 {
		returning := s.Returning
		body.Returning, body.LostCount = &returning, s.Lost
	}
	if s.NextReturnMS != 0 {
		left := Left(s.NextReturnMS, nowMS)
		body.NextReturnInMS = &left
	}
	return body
}

// ETagOf returns the ETag of a semaphore's settings.
func ETagOf(s *fsm.SemaphoreView) string {
	return `"` + SettingsTag{s.Epoch, s.Version}.String() + `"`
}

// SettingsTag names one version of the settings of one semaphore.
type SettingsTag struct{ Epoch, Version uint64 }

// String returns the tag as a batch has it. An ETag has quotes around it.
func (t SettingsTag) String() string {
	return strconv.FormatUint(t.Epoch, 10) + "." + strconv.FormatUint(t.Version, 10)
}

// ParseSettingsTag reads a tag in its only spelling.
func ParseSettingsTag(text string) (SettingsTag, bool) {
	epoch, version, _ := strings.Cut(text, ".")
	e, epochOK := exchange.ParseDigits(epoch)
	v, versionOK := exchange.ParseDigits(version)
	return SettingsTag{e, v}, epochOK && versionOK && e > 0 && v > 0
}

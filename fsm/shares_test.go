package fsm

import (
	"strings"
	"testing"
)

// TestSharesOfOwners: an identity may fill half of what all share, and no more; another one, and
// a caller without identity, go on. The counts follow each record, also into a restored machine.
func TestSharesOfOwners(t *testing.T) {
	m, index := New(), uint64(0)
	apply := func(owner string, commands ...Command) (last Result) {
		index++
		var entry [][]byte
		for _, c := range commands {
			entry = append(entry, Envelope{Owner: owner}.Encode(c))
		}
		applied := m.Apply(index, EncodeEntry(0, entry))
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		return applied.Commands[len(commands)-1].Result
	}
	refused := func(rule Rule, limit int64, c Command) {
		t.Helper()
		if r := apply("ann", c); r.Code != LimitReached || r.Rule != rule || r.Why().Limit != limit {
			t.Errorf("%T: %s", c, show(r))
		}
		for _, other := range []string{"", "bob"} {
			if r := apply(other, c); r.Code == LimitReached {
				t.Errorf("%T of %q: %s", c, other, show(r))
			}
		}
	}
	limits := DefaultLimits()
	limits.Semaphores = 5
	apply("", StartTerm{Term: 1, Limits: limits})
	apply("ann", CreateSemaphore{Name: "1"}, CreateSemaphore{Name: "2"}, CreateSemaphore{Name: "3"})
	refused(RuleOwnerSemaphores, 3, CreateSemaphore{Name: "4"})
	apply("bob", DeleteSemaphore{Name: "3"})
	if r := apply("ann", CreateSemaphore{Name: "5"}); r.Code != OK {
		t.Errorf("a name after a delete: %s", show(r))
	}

	sharesOfOwnLimits(t, m, apply)

	notice := Down{Name: "1", Count: 1, Notice: "http://a.example/"}
	for range maxNoticesHere / 2 {
		apply("ann", notice)
	}
	refused(RuleOwnerNotices, maxNoticesHere/2, notice)
	counts := m.owned["ann"]
	counts.notices += maxNotices/2 - maxNoticesHere/2
	m.owned["ann"] = counts
	m.caller.Owner = "ann"
	result := Result{}
	if m.addNotice(m.byName["2"], "", Down{Name: "2", Count: 1, Notice: "u"}, &result); result.Rule != RuleOwnerNotices {
		t.Errorf("the 5,001st notice: %s", show(result))
	}
	m.caller.Owner, counts.notices = "", maxNoticesHere/2
	m.owned["ann"] = counts

	sharesOfItems(t, m, apply)
}

func sharesOfItems(t *testing.T, m *Machine, apply func(owner string, commands ...Command) Result) {
	t.Helper()
	large := strings.Repeat("x", MaxValueBytes)
	apply("ann", OpenHolder{Session: 1, TTLMS: MaxTTLMS, About: large[:MaxAboutBytes]}, ItemPut{Name: "mine", Value: large})
	apply("bob", ItemPut{Name: "its", Value: large[:100]})
	counts := m.owned["ann"]
	full := counts
	full.itemBytes = maxItemBytes / 2
	m.owned["ann"] = full
	for _, c := range []Command{ItemPut{Name: "new"}, OpenHolder{Session: 2, TTLMS: 1000}, ItemPut{Name: "its", Value: large}} {
		m.caller.Owner = "ann"
		if r := c.apply(m); r.Rule != RuleOwnerItemBytes || r.Why().Limit != maxItemBytes/2 {
			t.Errorf("%T: %s", c, show(r))
		}
	}
	full.itemBytes, full.items = 0, maxItems/2
	m.owned["ann"] = full
	if r := (ItemPut{Name: "new"}).apply(m); r.Rule != RuleOwnerItems {
		t.Errorf("an item more: %s", show(r))
	}
	if r := (ItemPut{Name: "its", Value: "short"}).apply(m); r.Code != OK || m.owned["bob"].items != 1 {
		t.Errorf("what does not grow: %s, %+v", show(r), m.owned["bob"])
	}
	m.caller.Owner, m.owned["ann"], m.effects = "", counts, nil
	if r := apply("bob", ItemPut{Name: "mine", Value: large + ""}, ItemPut{Name: "mine", Flags: 1}, ItemPut{Name: "mine", Value: large}); r.Code != OK || m.owned["bob"].items != 2 {
		t.Errorf("an item made longer by another: %s, %+v", show(r), m.owned["bob"])
	}
	checkRestoredShares(t, m)
	apply("ann", EndSession{Session: 1}, ItemDelete{Name: "its"}, ItemDelete{Name: "mine"})
	if has := m.owned["bob"]; has.items+has.itemBytes != 0 || m.owned["ann"].itemBytes != 0 {
		t.Errorf("left: %+v %+v", has, m.owned["ann"])
	}
}

func sharesOfOwnLimits(t *testing.T, m *Machine, apply func(owner string, commands ...Command) Result) {
	t.Helper()
	apply("bob", CreateSemaphore{Name: "pool", Permits: 9, Settings: SettingsChange{Groups: Change[Grouping]{Given: true, Value: ByRequest}}})
	apply("ann", GroupPut{Name: "pool", Group: "g", Limit: 1})
	apply("bob", GroupPut{Name: "pool", Group: "g", Limit: 2})
	has := m.owned["ann"]
	if has.ownLimits != 1 || m.owned["bob"].ownLimits != 0 {
		t.Errorf("limits of groups: %+v %+v", has, m.owned["bob"])
	}
	checkRestoredShares(t, m)
	full := has
	full.ownLimits = maxOwnLimits / 2
	m.owned["ann"], m.caller.Owner = full, "ann"
	if r := (GroupPut{Name: "pool", Group: "h", Limit: 1}).apply(m); r.Rule != RuleOwnerOwnLimits || r.Why().Limit != maxOwnLimits/2 {
		t.Errorf("a limit more: %s", show(r))
	}
	if r := (GroupPut{Name: "pool", Group: "g", Limit: 3}).apply(m); r.Code != OK {
		t.Errorf("another limit: %s", show(r))
	}
	m.owned["ann"], m.effects = has, nil
	if apply("bob", GroupPut{Name: "pool", Group: "g", Limit: NoLimit}); m.owned["ann"].ownLimits != 0 {
		t.Errorf("left: %+v", m.owned["ann"])
	}
}

func checkRestoredShares(t *testing.T, m *Machine) {
	t.Helper()
	restored := reread(t, m)
	if restored.owned["ann"] != m.owned["ann"] || restored.owned["bob"] != m.owned["bob"] {
		t.Fatalf("restored: %+v", restored.owned)
	}
}

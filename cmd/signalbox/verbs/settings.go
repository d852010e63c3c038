package verbs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// noSetting is the value of a flag that clears a setting.
const noSetting = "none"

// numberFlag is the value of a flag that is a number or noSetting.
type numberFlag struct {
	least int64
	n     int64
	none  bool
	set   bool
}

func (f *numberFlag) String() string {
	switch {
	case !f.set:
		return ""
	case f.none:
		return noSetting
	}
	return strconv.FormatInt(f.n, 10)
}

// Set implements pflag.Value.
func (f *numberFlag) Set(text string) (err error) {
	if f.set, f.none = true, text == noSetting; f.none {
		return nil
	}
	if f.n, err = strconv.ParseInt(text, 10, 64); err == nil && f.n < f.least {
		err = fmt.Errorf("it is at least %d, or %s", f.least, noSetting)
	}
	return err
}

// Type implements pflag.Value. The help shows it.
func (f *numberFlag) Type() string { return "N|" + noSetting }

// durationFlag is the value of a flag that is a duration or noSetting, which means 0.
type durationFlag struct {
	d   time.Duration
	set bool
}

func (f *durationFlag) String() string {
	switch {
	case !f.set:
		return ""
	case f.d == 0:
		return noSetting
	}
	return f.d.String()
}

// Set implements pflag.Value.
func (f *durationFlag) Set(text string) (err error) {
	if f.set, f.d = true, 0; text != noSetting {
		f.d, err = time.ParseDuration(text)
	}
	return err
}

// Type implements pflag.Value. The help shows it.
func (f *durationFlag) Type() string { return "duration|" + noSetting }

// settingFlags are the flags of the settings of a semaphore.
type settingFlags struct {
	permits, perGroup, maxWaiting        numberFlag
	groups, whenFull, pause, onLost      string
	headStart, window, cooldown, maxHold durationFlag
	resume, slots                        bool
}

// settingValues has the allowed values of flags; --on-lost also allows durations.
var settingValues = map[string][]string{
	"groups":    {signalbox.ByRequest, signalbox.ByOwner, noSetting},
	"when-full": {signalbox.Refuse, signalbox.DropOldest, noSetting},
	"on-lost":   {signalbox.Release, signalbox.Quarantine, noSetting},
}

func (f *settingFlags) add(flags *pflag.FlagSet) {
	f.perGroup.least, f.maxWaiting.least = 1, 1
	flags.Var(&f.permits, "permits", "how many permits it has; none: only groups have limits, which needs --groups and --per-group")
	flags.StringVar(&f.groups, "groups", "", "request: requests are of the group that they name; owner: of their caller's identity; none: no groups")
	flags.Var(&f.perGroup, "per-group", "the limit of each group without an own limit")
	flags.StringVar(&f.pause, "pause", "", "grant no permit, for this reason")
	flags.Var(&f.maxWaiting, "max-waiting", "the most requests in a line")
	cli.WithoutVariable(flags, "max-waiting") // serve uses this variable for a limit
	flags.StringVar(&f.whenFull, "when-full", "", "what a full line does to one more request: refuse, or drop-oldest: the first one ends in its place; none: refuse")
	flags.Var(&f.headStart, "head-start", "the longest head start of a request; none: no head starts")
	flags.Var(&f.window, "window", "what is granted comes back so long after its grant, and not before: --permits N --window 1m grants N a minute")
	flags.Var(&f.cooldown, "cooldown", "what a lease gives up comes back so long after its end")
	flags.StringVar(&f.onLost, "on-lost", "", "when the permits of a lost lease come back: release: as others; quarantine: when \"signalbox free\" says so; or after a duration")
	flags.BoolVar(&f.slots, "slots", false, "leases say which of the permits they have, by numbers from 0; --slots=false ends that")
	cli.WithoutVariable(flags, "slots") // an outer run sets this variable
	flags.Var(&f.maxHold, "max-hold", "the longest time that a lease is held; then it is lost")
}

// options returns the settings that are given by flags.
func (f *settingFlags) options(flags *pflag.FlagSet) (options []signalbox.SettingOption, err error) {
	for name, value := range map[string]string{"groups": f.groups, "when-full": f.whenFull} {
		if text := valueOf(value); flags.Changed(name) && text != "" && text != settingValues[name][0] && text != settingValues[name][1] {
			return nil, cli.UsageError(fmt.Errorf("--%s: %q is not %s, %s or %s", name, value, settingValues[name][0], settingValues[name][1], noSetting))
		}
	}
	if f.pause != "" && f.resume {
		return nil, cli.UsageError(errors.New("give --pause or --resume, not both"))
	}
	add := func(set bool, option signalbox.SettingOption) {
		if set {
			options = append(options, option)
		}
	}
	add(f.permits.none, signalbox.NoTotal())
	add(flags.Changed("groups"), signalbox.Groups(valueOf(f.groups)))
	add(f.perGroup.set, signalbox.PerGroup(f.perGroup.n))
	add(f.pause != "", signalbox.Paused(f.pause))
	add(f.resume, signalbox.Paused(""))
	add(f.maxWaiting.set, signalbox.MaxWaiting(int(min(f.maxWaiting.n, math.MaxInt32))))
	add(flags.Changed("when-full"), signalbox.WhenFull(valueOf(f.whenFull)))
	add(f.headStart.set, signalbox.HeadStart(f.headStart.d))
	add(f.window.set, signalbox.Window(f.window.d))
	add(f.cooldown.set, signalbox.Cooldown(f.cooldown.d))
	add(flags.Changed("on-lost"), signalbox.OnLost(valueOf(f.onLost)))
	add(flags.Changed("slots"), signalbox.Slots(f.slots))
	add(f.maxHold.set, signalbox.MaxHold(f.maxHold.d))
	return options, nil
}

// valueOf returns the value of a setting. "" clears the setting.
func valueOf(text string) string {
	if text == noSetting {
		return ""
	}
	return text
}

// match reports whether a semaphore has the settings that are given by flags.
func (f *settingFlags) match(s *signalbox.Semaphore, flags *pflag.FlagSet) bool {
	return s.NoTotal == f.permits.none && s.Permits == f.permits.n &&
		(!flags.Changed("groups") || s.Groups == valueOf(f.groups)) &&
		(!f.perGroup.set || s.PerGroup == f.perGroup.n) &&
		(f.pause == "" || s.Paused == f.pause) &&
		(!f.maxWaiting.set || s.MaxWaiting == f.maxWaiting.n) &&
		(!flags.Changed("when-full") || s.WhenFull == valueOf(f.whenFull)) &&
		(!f.headStart.set || s.HeadStart == f.headStart.d) &&
		(!f.window.set || s.Window == f.window.d) &&
		(!f.cooldown.set || s.Cooldown == f.cooldown.d) &&
		(!flags.Changed("on-lost") || s.OnLost == lostRule(f.onLost)) &&
		(!flags.Changed("slots") || s.Slots == f.slots) &&
		(!f.maxHold.set || s.MaxHold == f.maxHold.d)
}

// lostRule returns a value of --on-lost in the form in which a semaphore shows it.
func lostRule(text string) string {
	if d, err := time.ParseDuration(text); err == nil {
		return d.String()
	}
	if text == signalbox.Release {
		return ""
	}
	return valueOf(text)
}

func setVerb() verb {
	var f settingFlags
	return verb{use: "set NAME", short: "Change the settings of a semaphore", minimum: 1, maximum: 1, values: settingValues,
		complete: []source{semaphoreNames}, long: "\n\nSettings without a flag stay as they are. No lease ends; a lower limit only delays grants.",
		flags: func(flags *pflag.FlagSet) {
			f.add(flags)
			flags.BoolVar(&f.resume, "resume", false, "end a pause")
		},
		run: func(c *call) error {
			settings, err := f.options(c.flags)
			if err != nil {
				return err
			}
			options := []signalbox.PutOption{signalbox.OnlyExisting()}
			for _, o := range settings {
				options = append(options, o)
			}
			if f.permits.set && !f.permits.none {
				options = append(options, signalbox.Permits(f.permits.n))
			}
			if len(options) == 1 {
				return cli.UsageError(errors.New("set needs a setting"))
			}
			s, _, err := c.client.Put(c, c.arguments[0], options...)
			if err != nil {
				return err
			}
			return errors.Join(c.Result(s.Name, s), c.Printf("%s", summary(s)))
		}}
}

// terms describes the permits and settings of a semaphore for people.
func terms(s *signalbox.Semaphore) string {
	return strings.Join(append([]string{permitsOf(s)}, settingsOf(s)...), ", ")
}

// settingsOf describes the optional settings of a semaphore for people.
func settingsOf(s *signalbox.Semaphore) (texts []string) {
	add := func(set bool, format string, arguments ...any) {
		if set {
			texts = append(texts, fmt.Sprintf(format, arguments...))
		}
	}
	add(s.Groups != "", "groups by %s", s.Groups)
	add(s.PerGroup > 0, "%d per group", s.PerGroup)
	add(s.MaxWaiting > 0 && s.WhenFull != signalbox.DropOldest, "at most %d waiting", s.MaxWaiting)
	add(s.MaxWaiting > 0 && s.WhenFull == signalbox.DropOldest, "only the newest %d waiting", s.MaxWaiting)
	add(s.HeadStart > 0, "head start up to %s", cli.ShortDuration(s.HeadStart))
	add(s.Window > 0, "window of %s", cli.ShortDuration(s.Window))
	add(s.Cooldown > 0, "cooldown of %s", cli.ShortDuration(s.Cooldown))
	add(s.OnLost != "", "lost permits: %s", s.OnLost)
	add(s.MaxHold > 0, "held for %s at most", cli.ShortDuration(s.MaxHold))
	add(s.Slots, "slots")
	add(s.Paused != "", "paused: %s", cli.Printable(s.Paused))
	return texts
}

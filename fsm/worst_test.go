//go:build unix

package fsm

import (
	"testing"
	"time"
)

// worstCase is one row of BenchmarkWorstApply: a state, and the commands of the
// worst entry for an operation within the default limits.
type worstCase struct {
	name string
	// fill makes the state, with the default limits in force and cluster time 0.
	fill func(*loader)
	// command returns the entry's i-th command. An entry takes as many as
	// EntryWeight and EntryBytes allow.
	command func(i int) Command
	// commands ends the entry earlier, where the state has no more to be worked on;
	// 0: EntryWeight, negative: none.
	commands int
	// stampMS is the entry's stamp.
	stampMS int64
}

// entry fills one entry with the commands of a case.
func (w *worstCase) entry(m *Machine) (entry []byte, commands int) {
	most := w.commands
	if most == 0 {
		most = EntryWeight
	}
	var encoded [][]byte
	weight, bytes := 0, 0
	for i := range max(most, 0) {
		c := w.command(i)
		data := Envelope{Request: RequestID{1, uint64(i) + 1}, Key: ""}.Encode(c)
		cost := Cost(c, m.SessionRecords(CostlySession(c)))
		if i > 0 && (weight+cost > EntryWeight || bytes+len(data) > EntryBytes) {
			break
		}
		weight, bytes = weight+cost, bytes+len(data)
		encoded = append(encoded, data)
	}
	return EncodeEntry(w.stampMS, encoded), len(encoded)
}

// BenchmarkWorstApply reports, for each operation, how long the worst entry
// takes that a leader may make of it within the default limits, and the worst of
// the entries without commands that follow while work is left over.
//
//	go test ./fsm -run '^$' -bench WorstApply -benchtime 1x
func BenchmarkWorstApply(b *testing.B) {
	for _, w := range worstCases() {
		b.Run(w.name, func(b *testing.B) {
			var worst, rest, cpu time.Duration
			commands, entries := 0, 0
			for range b.N {
				b.StopTimer()
				l := &loader{m: NewAtLevel(FeatureLevel), check: func(applied *Applied) { must(b, applied) }}
				l.add(Reign{Term: 1, Limits: DefaultLimits()})
				if w.fill != nil {
					w.fill(l)
				}
				l.flush()
				var entry []byte
				entry, commands = w.entry(l.m)
				b.StartTimer()
				start, used := time.Now(), processor(b)
				applied := l.apply(entry)
				worst, cpu = max(worst, time.Since(start)), max(cpu, processor(b)-used)
				must(b, applied)
				entries = 0
				for applied.MoreDue {
					start, used = time.Now(), processor(b)
					applied = l.apply(EncodeEntry(w.stampMS, nil))
					rest, cpu = max(rest, time.Since(start)), max(cpu, processor(b)-used)
					entries++
				}
			}
			b.ReportMetric(float64(commands), "commands")
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
			b.ReportMetric(float64(cpu.Microseconds())/1000, "worst-cpu-ms") // garbage collection included
			if entries > 0 {
				b.ReportMetric(float64(rest.Microseconds())/1000, "worst-rest-ms")
				b.ReportMetric(float64(entries), "rest-entries")
			}
		})
	}
}

package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultFolders hold the code whose faults lose or invent state.
var defaultFolders = []string{"fsm", "store", "store/folder", "store/journal", "store/logs", "store/snapshots"}

// first, and slow, select tests by folder: those that take little time and catch most, and
// those that take much longer than the others and run last, in this order.
var (
	first = map[string]string{"fsm": "^TestScripts$"}
	slow  = map[string][]string{
		"fsm":             {"^TestProperty", "^(TestExhaustion|TestFullEntries|TestAnEntryAfter|TestSequences|TestCommandsTouch|TestLarge)"},
		"store":           {"^(TestFileThatIsGone|TestDamageUnderARunningNode)", "^TestPowerLoss", "^TestDamagedFilesAreNeverBelieved"},
		"store/logs":      {"^TestReadsBesideCuts"},
		"store/snapshots": {"^(TestSnapshotsBeside|TestCrashAtEachStep)"},
	}
)

// above has the folder whose tests run when a fault survives its folder's tests.
var above = map[string]string{"store/folder": "store", "store/journal": "store", "store/logs": "store", "store/snapshots": "store"}

// stages divides tests into those that take little time and the rest.
func (t tests) stages() (stages []tests) {
	if t.run != "" || slow[t.folder] == nil {
		return []tests{t}
	}
	skip := slices.Clone(slow[t.folder])
	if run := first[t.folder]; run != "" {
		stages, skip = append(stages, tests{folder: t.folder, run: run}), append(skip, run)
	}
	stages = append(stages, tests{folder: t.folder, skip: strings.Join(skip, "|")})
	for _, run := range slow[t.folder] {
		stages = append(stages, tests{folder: t.folder, run: run})
	}
	return stages
}

// edit is one random fault: a piece of a file and the text in its place.
type edit struct {
	file       string // path from the root
	start, end int    // offsets
	text       string
	name       string
}

// draw returns all faults of the folders in an order that the seed chooses, and the contents
// of their files.
func (r *runner) draw(folders []string, seed uint64) (edits []edit, contents map[string]string, err error) {
	contents = map[string]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(r.root, filepath.FromSlash(folder), "*.go"))
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			name := path.Join(folder, filepath.Base(file))
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			if !builtHere(name) {
				continue
			}
			found, err := editsOf(name, string(content))
			if err != nil {
				return nil, nil, err
			}
			contents[name] = string(content)
			edits = append(edits, found...)
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
	return edits, contents, nil
}

// parseNumbers reads numbers of faults and ranges of them, none above count; all for "".
func parseNumbers(text string, count int) (numbers []int, err error) {
	if text == "" {
		text = fmt.Sprintf("1-%d", count)
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if ranged && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 1 || last < first || last > count {
			return nil, fmt.Errorf("%q is no number of a fault, 1 to %d, and no range of them", part, count)
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// random runs faults of a seed, by their numbers in its order, and prints each of them and the
// share of those that were caught. Faults that do not build do not count.
func (r *runner) random(ctx context.Context, folders []string, seed uint64, numbers []int) error {
	edits, contents, err := r.draw(folders, seed)
	if err != nil {
		return err
	}
	fmt.Printf("%d possible faults in %s; seed %d\n", len(edits), strings.Join(folders, ", "), seed)
	jobs := map[string][]job{}
	for _, i := range numbers {
		if i > len(edits) {
			break
		}
		e := edits[i-1]
		folder := path.Dir(e.file)
		faulty := contents[e.file][:e.start] + e.text + contents[e.file][e.end:]
		jobs[folder] = append(jobs[folder], job{e.file, contents[e.file], change{i, faulty}, fmt.Sprintf("%d %s", i, e.name), tests{folder: folder}.stages()})
	}
	started, sum := time.Now(), map[verdict]int{}
	for _, folder := range slices.Backward(folders) { // store last: what the rooms of it leave over
		if len(jobs[folder]) == 0 {
			continue
		}
		err := r.each(ctx, folder, jobs[folder], func(j job, o outcome) {
			if up := above[folder]; up != "" && o.verdict == survived {
				j.stages = tests{folder: up}.stages()
				jobs[up] = append(jobs[up], j)
				return
			}
			sum[o.verdict]++
			o.print(j.name)
		})
		if err != nil {
			return err
		}
	}
	killed, all := sum[caught]+sum[hung], sum[caught]+sum[hung]+sum[survived]
	fmt.Printf("\n%d faults: %d caught, %d hung, %d survived: %.1f %% killed; %d more did not build; in %v\n", all,
		sum[caught], sum[hung], sum[survived], 100*float64(killed)/float64(max(all, 1)), sum[invalid], time.Since(started).Round(time.Second))
	return ctx.Err()
}

// builtHere reports whether a file is code of this system, and no test.
func builtHere(file string) bool {
	stem := strings.TrimSuffix(path.Base(file), ".go")
	other := slices.ContainsFunc([]string{"_test", "_darwin", "_windows", "_other", "_freebsd"}, func(end string) bool { return strings.HasSuffix(stem, end) })
	return !other && stem != "doc"
}

// swapped has the comparison in place of another one.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

// editsOf returns all random faults of a file: negated conditions, comparisons and constants
// off by one, and dropped statements.
func editsOf(file, content string) (edits []edit, err error) {
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, content, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(from, to token.Pos, what, text string) {
		at := positions.Position(from)
		start, end := at.Offset, positions.Position(to).Offset
		was, _, _ := strings.Cut(content[start:end], "\n")
		edits = append(edits, edit{file, start, end, text, fmt.Sprintf("%s:%d: %s: %s", file, at.Line, what, was)})
	}
	negate := func(e ast.Expr) {
		add(e.Pos(), e.End(), "negated", "!("+content[positions.Position(e.Pos()).Offset:positions.Position(e.End()).Offset]+")")
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GenDecl:
			return n.Tok != token.IMPORT
		case *ast.CallExpr: // the texts and values of a broken invariant
			called, ok := n.Fun.(*ast.Ident)
			return !ok || called.Name != "panic"
		case *ast.IfStmt:
			negate(n.Cond)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, condition := range clause.(*ast.CaseClause).List {
						negate(condition)
					}
				}
			}
		case *ast.BinaryExpr:
			if to, ok := swapped[n.Op]; ok {
				add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), "now "+to.String(), to.String())
			}
		case *ast.BasicLit:
			if value, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
				add(n.Pos(), n.End(), "one more", strconv.FormatInt(value+1, 10))
				add(n.Pos(), n.End(), "one less", strconv.FormatInt(value-1, 10))
			}
		case *ast.ExprStmt, *ast.IncDecStmt:
			add(n.Pos(), n.End(), "dropped", "")
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				add(n.Pos(), n.End(), "dropped", "")
			}
		}
		return true
	})
	return edits, nil
}

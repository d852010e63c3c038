//go:build processes && linux

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asCommand as the first argument makes the test binary the command that "signalbox run" executes.
const asCommand = "as-command"

// act is the command that run executes in these tests: it connects to the stage, reports its role and the signals that
// it receives, and carries out orders. Signals don't end it.
func act(address string, role string) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	connection, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	fmt.Fprintln(connection, role, os.Getenv("SIGNALBOX_SEMAPHORE"), os.Getenv("SIGNALBOX_SESSION"), os.Getenv("SIGNALBOX_TOKEN"))
	go func() {
		for s := range signals {
			fmt.Fprintln(connection, "heard", s)
		}
	}()
	for told := bufio.NewScanner(connection); told.Scan(); {
		word, rest, _ := strings.Cut(told.Text(), " ")
		number, _ := strconv.Atoi(rest)
		switch word {
		case "exit":
			os.Exit(number)
		case "die": // of a signal
			signal.Reset()
			_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
		case "read": // a line of its standard input
			line, err := bufio.NewReader(os.Stdin).ReadString('\n')
			fmt.Fprintln(connection, "read", strings.TrimSpace(line), err)
		case "fork":
			if err := exec.Command(os.Args[0], asCommand, address, "grandchild").Start(); err != nil {
				fmt.Fprintln(connection, err)
			}
		}
	}
	os.Exit(98)
}

// stage is an address to which commands connect.
type stage struct {
	*testing.T
	listener net.Listener
}

func newStage(t *testing.T) *stage {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return &stage{t, listener}
}

// command is the command that run runs.
func (s *stage) command() []string {
	return []string{"--", testProgram, asCommand, s.listener.Addr().String(), "child"}
}

// player is a command that has connected to the stage.
type player struct {
	*testing.T
	net.Conn
	role, semaphore, session string
	token                    uint64
	lines                    chan string   // the lines that it writes; closed with gone
	gone                     chan struct{} // closed when the process is
	at                       time.Time     // when that was; read after gone
}

// next waits until the next command connects.
func (s *stage) next() *player {
	s.Helper()
	must(s.T, s.listener.(*net.TCPListener).SetDeadline(time.Now().Add(30*time.Second)))
	connection, err := s.listener.Accept()
	must(s.T, err)
	p := &player{T: s.T, Conn: connection, lines: make(chan string, 64), gone: make(chan struct{})}
	s.Cleanup(func() { connection.Close(); <-p.gone })
	from := bufio.NewScanner(connection)
	if !from.Scan() {
		s.Fatal("a command has gone before it said who it is")
	}
	if n, err := fmt.Sscan(from.Text(), &p.role, &p.semaphore, &p.session, &p.token); n != 4 {
		s.Fatalf("%q: %v", from.Text(), err)
	}
	go func() {
		for from.Scan() {
			p.lines <- from.Text()
		}
		p.at = time.Now()
		close(p.gone)
		close(p.lines)
	}()
	return p
}

// tell sends an instruction to the command.
func (p *player) tell(format string, arguments ...any) {
	fmt.Fprintf(p.Conn, format+"\n", arguments...)
}

// says waits for the next line of the command, which must be line.
func (p *player) says(line string) {
	p.Helper()
	select {
	case got := <-p.lines:
		if got != line {
			p.Fatalf("%s: it says %q, not %q", p.role, got, line)
		}
	case <-time.After(20 * time.Second):
		p.Fatalf("%s: it never said %q", p.role, line)
	}
}

// hears waits until the command has reported exactly these signals, in this order.
func (p *player) hears(signals ...syscall.Signal) {
	p.Helper()
	for _, s := range signals {
		p.says("heard " + s.String())
	}
}

// ended waits until the command has ended.
func (p *player) ended(within time.Duration) {
	p.Helper()
	select {
	case <-p.gone:
	case <-time.After(within):
		p.Fatalf("the %s still runs after %v", p.role, within)
	}
}

// alive fails the test if the command has ended.
func (p *player) alive() {
	p.Helper()
	select {
	case <-p.gone:
		p.Fatalf("the %s has ended", p.role)
	default:
	}
}

// startRun runs a command on the stage with run, against the given addresses.
func (s *stage) startRun(log, name string, addresses []string, flags ...string) *process {
	s.Helper()
	arguments := slices.Concat([]string{"run", name, "--addr", strings.Join(addresses, ",")}, flags, s.command())
	return startProcess(s.T, testProgram, log, arguments...)
}

// exits waits for the end of a process. It checks the status, and that the process wrote one line with the words if
// there are any.
func (p *process) exits(t *testing.T, status int, words ...string) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		t.Fatal("it still runs")
	}
	if got := p.command.ProcessState.ExitCode(); got != status {
		t.Errorf("status %d, not %d", got, status)
	}
	text := tail(p.log, 60)
	told := strings.Count("\n"+text, "\nsignalbox: ")
	if want := min(len(words), 1); told != want {
		t.Errorf("told %d lines: %s", told, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q doesn't say %q", text, word)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errNotInstalled says that the program of a system was not found.
var errNotInstalled = errors.New("not installed")

// find returns the path of a program, or errNotInstalled.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, errNotInstalled)
	}
	return path, nil
}

// freePorts returns n different TCP ports of loopback that no program listens on.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func local(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// processes are the running programs of one system.
type processes []*exec.Cmd

// start runs a program, which writes its output to dir/output. The program ends with this one.
func (p *processes) start(dir, program string, arguments ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	command := exec.Command(program, arguments...)
	command.Dir, command.Stdout, command.Stderr = dir, output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	*p = append(*p, command)
	return nil
}

// kill ends a program as `kill -9` does, and waits for its end.
func (p *processes) kill(number int) {
	_ = (*p)[number].Process.Kill()
	_ = (*p)[number].Wait()
}

// restart starts a program that was killed as it was started before.
func (p *processes) restart(number int) error {
	former := (*p)[number]
	next := exec.Command(former.Path, former.Args[1:]...)
	next.Dir, next.SysProcAttr = former.Dir, former.SysProcAttr
	(*p)[number] = next
	return next.Start()
}

// stop kills the programs and waits for their end.
func (p *processes) stop() {
	for i := range *p {
		p.kill(i)
	}
}

// processorTime returns the processor time that the programs have used so far.
func (p *processes) processorTime() (time.Duration, error) {
	const ticksPerSecond = 100 // of /proc on Linux, whatever the kernel's own rate
	var total time.Duration
	for _, command := range *p {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command.Process.Pid))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // from the third field on
		for _, field := range fields[11:13] {                                               // utime, stime
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(ticks) * time.Second / ticksPerSecond
		}
	}
	return total, nil
}

// await tries until it succeeds, for at most a minute.
func await(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		end()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

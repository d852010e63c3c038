package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// lendTerminal makes the command's group be the one in the terminal's foreground, if
// this process is it: only that may read from it, and Ctrl-C is meant for it.
func lendTerminal(a *syscall.SysProcAttr) (takeBack func()) {
	terminal := int(os.Stdin.Fd())
	own, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	if err != nil || own != unix.Getpgrp() {
		return func() {} // it is none, or it is somebody else's turn
	}
	signal.Ignore(syscall.SIGTTOU) // it stops whoever changes this from the background
	a.Foreground, a.Ctty = true, terminal
	return func() { _ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, own) }
}

// stayAwake keeps Ctrl-Z from stopping this process, which has to renew.
func stayAwake() (stop func()) {
	unheard := make(chan os.Signal, 1) // not ignored, since the command would inherit that
	signal.Notify(unheard, syscall.SIGTSTP, syscall.SIGTTIN)
	return func() { signal.Stop(unheard) }
}

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
)

// Advice is an error, and what the user can do next. Next is printed on a separate line.
type Advice struct {
	Err  error
	Next string
}

// Error returns the text of Err.
func (a *Advice) Error() string { return a.Err.Error() }

// Unwrap returns Err.
func (a *Advice) Unwrap() error { return a.Err }

// Explain adds Advice to the error of a request, if it is known what to do next. It returns other errors unchanged.
func Explain(err error) error {
	var known *Advice
	if err == nil || errors.As(err, &known) {
		return err
	}
	var refusal *signalbox.Error
	errors.As(err, &refusal)
	next := ""
	switch {
	case errors.Is(err, signalbox.ErrUnauthenticated):
		next = "Give a token of this cluster by --token-file or " + tokenVariable + "; a number in " + earlierVariable + " is a fencing token, and not a token of a cluster."
	case errors.Is(err, signalbox.ErrForbidden):
		next = "Its scope and prefixes don't allow this: ask an operator for a token that does."
	case refusal != nil && refusal.Code == "" && strings.HasPrefix(refusal.Detail, "Client sent an HTTP request to an HTTPS server"):
		err = &reworded{refusal.Address + " takes HTTPS alone", err}
		next = "Give its address with https://, and the file with the cluster's authority by --ca."
	case errors.Is(err, signalbox.ErrUnknownSemaphore) && refusal != nil && refusal.Semaphore != "":
		err = &reworded{fmt.Sprintf("there is no semaphore %q", refusal.Semaphore), err}
		next = fmt.Sprintf("Make it with \"signalbox create %s --permits N\"; \"signalbox ls\" lists all.", ShellQuote(refusal.Semaphore))
	case errors.Is(err, signalbox.ErrNever) && refusal != nil && refusal.Rule == "group-limit":
		next = fmt.Sprintf("\"signalbox groups %s\" shows the limits of its groups.", ShellQuote(refusal.Semaphore))
	case errors.Is(err, signalbox.ErrNever) && refusal != nil && refusal.Permits != nil && *refusal.Permits == 0:
		next = fmt.Sprintf("\"signalbox resize %[1]s N\" gives it permits; \"signalbox set %[1]s --pause REASON\" lets requests wait instead.", ShellQuote(refusal.Semaphore))
	case errors.Is(err, signalbox.ErrNever) && refusal != nil && refusal.Permits != nil:
		next = fmt.Sprintf("Ask for at most %d, or change that with \"signalbox resize %s N\".", *refusal.Permits, ShellQuote(refusal.Semaphore))
	case errors.Is(err, signalbox.ErrLineFull) && refusal != nil:
		next = fmt.Sprintf("\"signalbox why %s\" shows who waits. Ask again later, and not in a loop.", ShellQuote(refusal.Semaphore))
	case errors.Is(err, signalbox.ErrSuperseded):
		next = "Leave the work to the newer request."
	case errors.Is(err, signalbox.ErrNoTotal):
		next = "\"signalbox acquire\" and \"signalbox run\" take permits of a group."
	case errors.Is(err, signalbox.ErrRequestsWaiting) && refusal != nil:
		next = fmt.Sprintf("\"signalbox why %s\" shows who waits. Change it once the line is empty.", ShellQuote(refusal.Semaphore))
	case errors.Is(err, signalbox.ErrLimitReached):
		next = "Free some of what is counted, or ask an operator for a higher limit."
	case refusal != nil && refusal.Code == "history-gone":
		next = "\"signalbox events --last 1000\" begins with the latest that the node has, \"--since N\" behind the N that it names."
	case errors.Is(err, signalbox.ErrNoLeader), errors.Is(err, signalbox.ErrStorageFull), errors.Is(err, signalbox.ErrSplitState):
		next = "See the state of the cluster with \"signalbox status\"."
	case errors.Is(err, signalbox.ErrUnreachable) && !errors.Is(err, context.Canceled):
		var cause *net.OpError
		if errors.As(err, &cause) { // the operation and address are enough: leave out the HTTP method and path
			err = &reworded{signalbox.ErrUnreachable.Error() + ": " + cause.Error(), err}
		}
		next = "Start the nodes, or give their addresses by --addr or SIGNALBOX_ADDR; \"signalbox dev\" starts a cluster to try things out."
	}
	if found := adviceOnConnection(err); found != "" {
		next = found
	}
	if next == "" {
		return err
	}
	return &Advice{err, next}
}

// httpPort tells a user who has given the port for peers which port is for clients.
const httpPort = "clients use the HTTP port, 8701 unless the node's --http says otherwise."

// noApplicationProtocol is the alert of a server of TLS that speaks no protocol of the client. The port for peers sends
// it, as it takes the protocol of nodes alone.
const noApplicationProtocol tls.AlertError = 120

// adviceOnConnection returns what the user can do if a connection failed although a program listens at the address, or
// "" if it failed for another reason.
func adviceOnConnection(err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var misnamed x509.HostnameError
	var remote *net.OpError // crypto/tls does not export the type of the alert in it
	switch {
	case errors.As(err, &unknown):
		return "Give the file with the cluster's authority by --ca."
	case errors.As(err, &misnamed):
		return "Give an address that the node's certificate names, or issue a certificate that names this one, see \"signalbox cert node --help\"."
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().Before(invalid.Cert.NotBefore):
		return fmt.Sprintf("The node's certificate is valid from %s on: see whether the clock of this machine is right.", invalid.Cert.NotBefore.Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.IsCA:
		return fmt.Sprintf("The certificate of the cluster's authority ended at %s: make another authority, see \"signalbox cert --help\".", invalid.Cert.NotAfter.Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("The node's certificate ended at %s: issue another, see \"signalbox cert --help\"; the node reads it by itself.", invalid.Cert.NotAfter.Format(time.RFC3339))
	case errors.Is(err, http.ErrSchemeMismatch):
		return "Give its address with http://."
	case errors.As(err, &remote) && remote.Op == "remote error" && remote.Err.Error() == noApplicationProtocol.Error():
		return "This is the port for peers: " + httpPort
	case errors.Is(err, signalbox.ErrUnreachable) && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)):
		return "A program listens at an address, but ends the connection without a reply. If this is the port for peers: " + httpPort
	}
	return ""
}

// Arguments checks the number of a command's arguments. Its errors use the names in the command's Use.
func Arguments(minimum, maximum int) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		name, names := strings.TrimPrefix(command.CommandPath(), "signalbox "), strings.Fields(command.Use)[1:]
		for i, a := range arguments {
			switch {
			case i >= maximum && command.HasAvailableSubCommands():
				return fmt.Errorf("%s has no %q", name, a)
			case i >= maximum && maximum == 0:
				return fmt.Errorf("%s takes no arguments but flags: %q", name, a)
			case i >= maximum:
				return fmt.Errorf("%s takes %s, and not %q too", name, listed(names[:maximum]), a)
			case a == "":
				return fmt.Errorf("%s needs %s, which is empty", name, listed(names[i:i+1]))
			}
		}
		if len(arguments) < minimum {
			return fmt.Errorf("%s needs %s", name, listed(names[:minimum]))
		}
		return nil
	}
}

// listed joins names for a sentence.
func listed(names []string) string {
	var parts []string
	for _, name := range names {
		name, _, _ = strings.Cut(strings.Trim(name, "[]"), "[")
		name = strings.ReplaceAll(name, "|", " or ")
		article := "a "
		if name == "N" || strings.ContainsRune("AEIOU", rune(name[0])) {
			article = "an "
		}
		parts = append(parts, article+name)
	}
	return strings.Join(parts, " and ")
}

type reworded struct {
	text string
	error
}

func (r *reworded) Error() string { return r.text }

func (r *reworded) Unwrap() error { return r.error }

// ShellQuote quotes a word for a shell if necessary.
func ShellQuote(word string) string {
	safe := word != ""
	for _, c := range word {
		safe = safe && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '/' || c == '-' || c == '_' || c == '.' || c == ':')
	}
	if safe {
		return word
	}
	quoted := "'"
	for _, c := range word {
		if c == '\'' {
			quoted += `'\''`
		} else {
			quoted += string(c)
		}
	}
	return quoted + "'"
}

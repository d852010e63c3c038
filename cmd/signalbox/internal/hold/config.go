package hold

import (
	"io"
	"log/slog"
	"os"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

// Config says what to hold, permits or an item, and which command to run.
type Config struct {
	Name      string           // of a semaphore or, with Elect, of an item
	Command   []string         // a program and its arguments
	Variables []string         // NAME=VALUE, for the command, besides the variables of the permits
	Cluster   signalbox.Config // the addresses of its nodes, and the credentials
	Count     int64            // permits to hold
	Group     string           // of the semaphore
	HeadStart time.Duration    // of the request
	Create    bool             // make the semaphore with Permits if it does not exist
	Permits   int64
	Elect     bool          // lead by an item, instead of holding permits
	Value     string        // of that item
	TTL       time.Duration // of the session, which is renewed every third of it
	Wait      time.Duration // until it holds; 0: not at all, which Elect does not take
	Grace     time.Duration // between TERM and KILL; 0: a sixth of TTL, at most 10 s
	Anonymous bool          // don't record the host, process, user and command
	Terminal  io.Writer     // if it is one, shows what the command waits for
	Log       *slog.Logger
	Signals   <-chan os.Signal // relayed to the command; may be nil

	begin func(command, environment []string) (child, error)
}

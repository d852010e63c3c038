package hold

import (
	"io"
	"log/slog"
	"os"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

// Config says what to hold, permits or an item, and which command to run meanwhile.
type Config struct {
	Name      string           // name of a semaphore, or with Elect of an item
	Command   []string         // a program and its arguments
	Variables []string         // NAME=VALUE, for the command, besides the variables of the permits
	Cluster   signalbox.Config // addresses and credentials
	Count     int64            // permits to hold
	Group     string           // group of the request
	HeadStart time.Duration    // head start of the request
	Create    bool             // create the semaphore with Permits if it does not exist
	Permits   int64
	Elect     bool          // lead by holding an item, instead of holding permits
	Value     string        // value of the item
	TTL       time.Duration // ttl of the session, which is renewed when a third of it has passed
	Wait      time.Duration // longest wait to acquire; 0: don't wait, which Elect does not support
	Grace     time.Duration // time between TERM and KILL; 0: a sixth of TTL, at most 10 s
	Anonymous bool          // don't record the host, process, user and command
	Terminal  io.Writer     // if it is a terminal, it shows what the command waits for
	Log       *slog.Logger
	Signals   <-chan os.Signal // relayed to the command; may be nil

	begin func(command, environment []string) (child, error)
}

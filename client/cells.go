package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"

	"github.com/signalbox/signalbox/client/cells"
)

// Cell is one of several clusters that share the names of a service, see docs/cells.md.
type Cell struct {
	Number   int      // 1 to 62: the value of "serve --cell" on its nodes
	Prefixes []string // a name belongs to the cell with its longest prefix; one cell has ""
	Nodes    []string // base URLs, like Config.Addresses
}

// Cells has a Client for each cell. All its methods are safe for concurrent use.
//
// For(name) returns the Client for calls about a name. A call can't name semaphores of two cells, because each Client
// sends to one cell.
//
// Events belong to one cell too, because each cell numbers its own events. To follow the events of all cells, run
// Operator.Events for each cell, and keep the last Event.ID of each cell for operator.Since:
//
//	for _, cell := range list { // as in NewCells
//		go func() {
//			for e, err := range operator.New(c.Numbered(cell.Number)).Events(ctx) {
//				…
//			}
//		}()
//	}
//
// A program that needs all events in one stream can read /v1/events of "signalbox proxy", see docs/cells.md.
type Cells struct {
	rule    *cells.Map
	clients map[int]*Client // by the number of the cell
}

// NewCells makes a Client for each cell from cfg, in which Addresses and Cell must be empty. It fails like New. It also
// fails for a list in which a name would belong to no cell or to two cells. It sends no request.
func NewCells(cfg Config, list []Cell) (*Cells, error) {
	if len(cfg.Addresses) > 0 {
		return nil, errors.New("signalbox: the addresses are in the cells, and not in Config.Addresses")
	}
	plain := make([]cells.Cell, len(list))
	for i, c := range list {
		plain[i] = cells.Cell(c)
	}
	rule, err := cells.New(plain)
	if err != nil {
		return nil, fmt.Errorf("signalbox: %w", err)
	}
	c := &Cells{rule: rule, clients: map[int]*Client{}}
	for _, cell := range rule.All() {
		cfg.Addresses, cfg.Cell = cell.Nodes, cell.Number
		if c.clients[cell.Number], err = New(cfg); err != nil {
			return nil, fmt.Errorf("cell %d: %w", cell.Number, err)
		}
	}
	return c, nil
}

// For returns the Client of the cell to which the name belongs. It sends no request.
func (c *Cells) For(name string) *Client { return c.clients[c.rule.OfName(name).Number] }

// ForSession returns the Client of the cell whose number is part of the session's id, or nil. It sends no request.
func (c *Cells) ForSession(id string) *Client {
	number, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil
	}
	if cell := c.rule.OfSession(number); cell != nil {
		return c.clients[cell.Number]
	}
	return nil
}

// Numbered returns the Client of the cell with the number, for calls about a whole cluster, or nil if there is no such
// cell.
func (c *Cells) Numbered(number int) *Client { return c.clients[number] }

// List is Client.List over all cells, sorted by name. It leaves out a semaphore in a cell to which its name does not
// belong, for example while a prefix moves to another cell. An error of one cell is yielded last.
func (c *Cells) List(ctx context.Context, prefix string, opts ...ListOption) iter.Seq2[*Semaphore, error] {
	return func(yield func(*Semaphore, error) bool) {
		var heads []*listHead
		defer func() {
			for _, h := range heads {
				h.stop()
			}
		}()
		for _, cell := range c.rule.All() {
			h := &listHead{cell: cell.Number}
			h.next, h.stop = iter.Pull2(c.clients[cell.Number].List(ctx, prefix, opts...))
			heads = append(heads, h)
			if !h.advance(c.rule) {
				yield(nil, h.err)
				return
			}
		}
		for {
			heads = slices.DeleteFunc(heads, func(h *listHead) bool { return h.semaphore == nil })
			if len(heads) == 0 {
				return
			}
			first := slices.MinFunc(heads, func(a, b *listHead) int { return cmp.Compare(a.semaphore.Name, b.semaphore.Name) })
			if !yield(first.semaphore, nil) {
				return
			}
			if !first.advance(c.rule) {
				yield(nil, first.err)
				return
			}
		}
	}
}

// listHead is the first semaphore in the list of a cell that List has not yielded yet.
type listHead struct {
	cell      int
	next      func() (*Semaphore, error, bool)
	stop      func()
	semaphore *Semaphore // nil at the end of the list
	err       error
}

// advance moves to the next semaphore whose name belongs to h.cell. It returns false on an error.
func (h *listHead) advance(rule *cells.Map) bool {
	for {
		semaphore, err, more := h.next()
		h.semaphore, h.err = semaphore, err
		switch {
		case err != nil:
			return false
		case !more:
			h.semaphore = nil
			return true
		case rule.OfName(semaphore.Name).Number == h.cell:
			return true
		}
	}
}

// Close closes all Clients concurrently, as Client.Close does.
func (c *Cells) Close(ctx context.Context) error {
	failed := make([]error, cells.MaxNumber+1)
	var closing sync.WaitGroup
	for number, each := range c.clients {
		closing.Go(func() { failed[number] = each.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(failed...)
}

// CellSessions has a session in each cell for which For was called. It is safe for concurrent use.
type CellSessions struct {
	c     *Cells
	opts  SessionOptions
	parts map[int]*cellSession // by the number of the cell
}

type cellSession struct {
	turn    chan struct{} // a semaphore of capacity 1: full while a call opens the session
	session *Session      // nil until then
}

// NewSessions returns CellSessions that open each session with opts. It sends no request.
func (c *Cells) NewSessions(opts SessionOptions) *CellSessions {
	s := &CellSessions{c, opts, map[int]*cellSession{}}
	for number := range c.clients {
		s.parts[number] = &cellSession{turn: make(chan struct{}, 1)}
	}
	return s
}

// For returns the session in the cell to which the name belongs. The first call for a cell opens the session, as
// Client.OpenSession does. The loss of one session leaves the sessions in other cells alone. A lost session is not
// replaced: its calls fail with ErrLost.
func (s *CellSessions) For(ctx context.Context, name string) (*Session, error) {
	number := s.c.rule.OfName(name).Number
	part := s.parts[number]
	select {
	case part.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-part.turn }()
	if part.session != nil {
		return part.session, nil
	}
	opened, err := s.c.clients[number].OpenSession(ctx, s.opts)
	if err == nil {
		part.session = opened
	}
	return opened, err
}

// Close ends all sessions concurrently, as Session.Close does. The caller must not call For any more.
func (s *CellSessions) Close(ctx context.Context) error {
	failed := make([]error, cells.MaxNumber+1)
	var closing sync.WaitGroup
	for number, part := range s.parts {
		if part.session != nil {
			closing.Go(func() { failed[number] = part.session.Close(ctx) })
		}
	}
	closing.Wait()
	return errors.Join(failed...)
}

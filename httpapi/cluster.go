package httpapi

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
)

// getCluster answers what this node knows of the cluster, without a leader too.
func (h *Handler) getCluster(c echo.Context) error {
	if _, err := parseQuery(c, readParams()...); err != nil {
		return err
	}
	return h.sendCluster(c, http.StatusOK)
}

func (h *Handler) sendCluster(c echo.Context, code int) error {
	status := h.node.Status()
	h.setIndex(c, status.AppliedIndex)
	return h.sendJSON(c, code, "application/json", newClusterBody(status))
}

// memberTimeout bounds a PUT of a member when no leader is found either. The leader
// listens for 10 s until the member has caught up and votes; 202 then, and the
// member gets its vote by itself.
const memberTimeout = 30 * time.Second

// putMember adds a node, {"peer":"host:port"}.
func (h *Handler) putMember(c echo.Context) error {
	id, err := memberID(c)
	if err != nil {
		return err
	}
	given, err := h.readTexts(c, "peer")
	if err != nil {
		return err
	}
	if !validPeer(given["peer"]) {
		return invalid("peer", "A peer is host:port, as the other nodes reach it.")
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), memberTimeout)
	defer cancel()
	err = h.node.AddMember(ctx, id, given["peer"])
	if errors.Is(err, cluster.ErrCatchingUp) {
		return h.sendCluster(c, http.StatusAccepted)
	}
	if err != nil {
		return err
	}
	return h.sendCluster(c, http.StatusOK)
}

func (h *Handler) deleteMember(c echo.Context) error {
	id, err := memberID(c)
	if err != nil {
		return err
	}
	if _, err := h.readTexts(c); err != nil {
		return err
	}
	if !h.isMember(id) {
		return newProblem("unknown-member", "No member of the cluster has this id.")
	}
	if err := h.node.RemoveMember(c.Request().Context(), id); err != nil {
		return err
	}
	return h.sendCluster(c, http.StatusOK)
}

// postLeader hands the leadership over, to {"id":…} or to any caught-up voter.
func (h *Handler) postLeader(c echo.Context) error {
	given, err := h.readTexts(c, "id")
	if err != nil {
		return err
	}
	id, named := given["id"]
	if named && !validMember(id) {
		return invalid("id", memberForm)
	}
	if named && !h.isMember(id) {
		return newProblem("unknown-member", "No member of the cluster has this id.")
	}
	if err := h.node.TransferLeadership(c.Request().Context(), id); err != nil {
		return err
	}
	return h.sendCluster(c, http.StatusOK)
}

// readMembers reads a body with members of the names only, and refuses a query.
func (h *Handler) readMembers(c echo.Context, names ...string) (map[string]value, error) {
	if _, err := parseQuery(c); err != nil {
		return nil, err
	}
	body, err := h.readBody(c, h.cfg.BodyBytes)
	if err != nil {
		return nil, err
	}
	defer h.doneWithBody(c) // what follows may wait for long
	given := map[string]value{}
	for raw, of := range body.members() {
		if !contains(names, string(raw)) {
			return nil, invalid(string(raw), "This request does not take this member.")
		}
		given[string(raw)] = of
	}
	return given, nil
}

// readTexts is readMembers for a body of texts.
func (h *Handler) readTexts(c echo.Context, names ...string) (map[string]string, error) {
	body, err := h.readMembers(c, names...)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for name, of := range body {
		text, isText := of.text()
		if !isText {
			return nil, invalid(name, "This is not a text.")
		}
		given[name] = text
	}
	return given, nil
}

// putLevel raises the cluster's feature level, {"level":N}.
func (h *Handler) putLevel(c echo.Context) error {
	body, err := h.readMembers(c, "level")
	if err != nil {
		return err
	}
	given, ok := body["level"]
	level, isNumber := int64(0), false
	if ok {
		level, isNumber = given.integer()
	}
	if !isNumber || level < 1 || level > math.MaxUint32 {
		return invalid("level", "A feature level is a whole number from 1 on.")
	}
	if err := h.node.RaiseLevel(c.Request().Context(), uint32(level)); err != nil {
		return err
	}
	return h.sendCluster(c, http.StatusOK)
}

const memberForm = "A member's id is 1 to 64 letters, digits, dots, dashes or underscores."

func memberID(c echo.Context) (string, error) {
	id, ok := pathParam(c, "member")
	if !ok || !validMember(id) {
		return "", invalid("id", memberForm)
	}
	return id, nil
}

func validMember(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
		default:
			return false
		}
	}
	return true
}

func validPeer(address string) bool {
	if len(address) > 255 {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	for _, r := range host {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func (h *Handler) isMember(id string) bool {
	for _, m := range h.node.Status().Members {
		if m.ID == id {
			return true
		}
	}
	return false
}

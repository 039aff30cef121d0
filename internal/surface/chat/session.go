package chat

import (
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// sessionMember names the session that a request continues, or begins.
const sessionMember = "session_id"

// sessionOf returns the session that a body names; "" = none.
func sessionOf(members []surface.Member) (id string, err error) {
	for _, m := range members {
		if m.Name != sessionMember {
			continue
		}
		if id = ""; surface.IsNothing(m.Value) {
			continue
		}
		if err := decodeInto(m, &id); err != nil {
			return "", err
		}
		if err := conversation.CheckSessionID(sessionMember, id); err != nil {
			return "", err
		}
	}
	return id, nil
}

// continueSession makes the request continue the session that it names.
func continueSession(caller caller.Caller, req *run.Request, members []surface.Member) error {
	id, err := sessionOf(members)
	if err != nil || id == "" {
		return err
	}
	if req.Relay != nil {
		return noSession()
	}
	if err := conversation.CheckLength("messages", req.Items); err != nil {
		return err
	}
	req.Continues = conversation.Ref{ID: id, Resent: true, TTL: settings.SessionTTL(caller.Org.Runtime), Member: sessionMember}
	return nil
}

// checkRelay refuses a request that must not be passed on to a provider.
func checkRelay(members []surface.Member) error {
	if id, err := sessionOf(members); err != nil || id != "" {
		if err == nil {
			err = noSession()
		}
		return err
	}
	return checkIDs(members)
}

// noSession refuses the session of a request that runs no loop.
func noSession() error {
	return fault.New(fault.Invalid, "unsupported_parameter", "session_id: the agent loop is switched off for this request, and only the loop has sessions; "+
		"leave out session_id, or the header turnpike-mcp-disabled").In(sessionMember)
}

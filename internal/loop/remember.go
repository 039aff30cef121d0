package loop

import "slices"

// Remembered is a tool of which a person has approved a call, and with it further calls in the session.
type Remembered struct {
	Server     string `json:"server"`
	Tool       string `json:"tool"` // the server's own name
	ToolDigest string `json:"tool_digest"`
	Place      string `json:"place,omitempty"` // that of the CallPrepared

	// Asker is whose rule asked. Who may decide only what a request asks for has not answered a rule of the server.
	Asker Asker `json:"asker"`
}

// MaxRemembered is how many tools a session remembers. One more replaces the first one.
const MaxRemembered = 128

// Remembers reports whether a call needs no approval because a person has approved further calls of its tool, as it is
// defined now, at the place of now. Its asker is whose rule asks for it. What a hook asks for is always asked.
func (s *State) Remembers(call Remembered) bool {
	return slices.ContainsFunc(s.Remembered, func(r Remembered) bool {
		by := r.Asker
		r.Asker = call.Asker
		return r == call && call.Asker != AskedByHook && (by == call.Asker || by == AskedByServer)
	})
}

// remember adds the tool of a call that waits for the approval.
func (s *State) remember(waitID string) {
	for _, c := range s.Calls {
		if waitID == "" || c.WaitID() != waitID || c.Resolved || c.Prepared.Asker == AskedByHook {
			continue
		}
		p := c.Prepared
		r := Remembered{p.Server, p.Tool, p.ToolDigest, p.Place, p.Asker}
		kept := slices.DeleteFunc(slices.Clone(s.Remembered), func(o Remembered) bool {
			return o.Server == r.Server && o.Tool == r.Tool && (o.ToolDigest != r.ToolDigest || o.Place != r.Place || o.Asker == r.Asker)
		})
		if n := len(kept) - MaxRemembered + 1; n > 0 {
			kept = kept[n:]
		}
		kept = append(kept, r)
		s.Remembered = kept
		return
	}
}

package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// What is stored may come from another version, or from somebody else who can
// write the database. It is held to the rules of the management API before it
// is used: what these refuse is not served, and the log says so.

// refusedServer returns why a stored server is not used; nil for one that is,
// and for those of the configuration file.
func refusedServer(s org.MCPServer) error {
	if s.Declared {
		return nil
	}
	_, err := reader{vault: true}.MCPServer(given(admin.ServerSettings(s)), true)
	if f := fault.From(err); err != nil && !strings.HasPrefix(f.Message, f.Param) {
		err = fmt.Errorf("%s: %w", f.Param, err)
	}
	if err != nil {
		return fmt.Errorf("the stored settings of the server are not valid: %w", err)
	}
	return nil
}

// refusedRuntime returns why an org's stored settings cannot be served; nil if
// they can. A max_rounds above the operator's cap can: the cap holds.
func refusedRuntime(r org.Record) error {
	if len(r.UnknownSettings) > 0 {
		return errors.New("this version does not know " + strings.Join(r.UnknownSettings, ", "))
	}
	_, err := reader{roundsCap: math.MaxInt}.Runtime(given(admin.RuntimeSettings(r.Runtime)))
	return err
}

// given returns settings as JSON without those that are empty: older versions
// have stored nothing for what they did not know, and it has its default.
func given(settings any) []byte {
	text, _ := json.Marshal(settings) // no value of ours fails
	var members map[string]any
	_ = json.Unmarshal(text, &members)
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil || v == "" || v == 0.0 || v == "0s" })
	text, _ = json.Marshal(members)
	return text
}

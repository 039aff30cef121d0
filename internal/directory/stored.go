package directory

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Stored settings may come from another version, or from a program that writes the
// database. They are checked with the rules of the management API before they are
// used. Settings that it would refuse are not used, and the log says why.

// RefusedServer returns why a stored server is not used; nil for one that is,
// and for those of the configuration file.
func RefusedServer(s org.MCPServer) error {
	if s.FromFile {
		return nil
	}
	err := unknownSettings(s.UnknownSettings)
	if err == nil {
		err = readBack(config.ServerSettings(s), func(settings []byte) error {
			_, err := Reader{Vault: true}.MCPServer(settings, true)
			return err
		})
	}
	if f := fault.From(err); err != nil && f.Param != "" && !strings.HasPrefix(f.Message, f.Param) {
		err = fmt.Errorf("%s: %w", f.Param, err)
	}
	if err != nil {
		return fmt.Errorf("the stored settings of the server are not valid: %w", err)
	}
	return nil
}

// refusedRuntime returns why an org's stored settings cannot be used; nil if they can.
// A max_rounds or max_tool_rounds above the operator's cap, or outside what can be set, can: see clampRounds.
func refusedRuntime(r org.Record) error {
	if err := unknownSettings(r.UnknownSettings); err != nil {
		return err
	}
	return readBack(config.RuntimeSettings(clampRounds(r.Runtime)), func(settings []byte) error {
		_, err := Reader{RoundsCap: func() int { return math.MaxInt }, Vault: true, RunsCode: true,
			Storage: config.Storage{Database: true}}.Runtime(settings)
		return err
	})
}

// clampRounds returns the settings with a max_rounds and a max_tool_rounds that can be set: a stored value that
// is smaller or larger is replaced by the nearest one, and the org's requests are served.
func clampRounds(r org.Runtime) org.Runtime {
	if r.MaxRounds != nil {
		r.MaxRounds = new(min(max(*r.MaxRounds, 1), budget.MaxRounds))
	}
	if r.MaxToolRounds != nil {
		r.MaxToolRounds = new(min(max(*r.MaxToolRounds, 1), org.MaxToolRounds))
	}
	return r
}

func unknownSettings(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return errors.New("this version does not know " + strings.Join(names, ", "))
}

func readBack(s config.Settings, read func([]byte) error) error {
	settings, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return read(settings)
}

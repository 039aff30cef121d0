package sqltool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// An org that has as many processes as it may have keeps no other org from its own, and has connections besides.
func TestSlotsOfOrgs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConnections(ConnectionOptions{})
		defer c.Close()
		take := func(of, database string, child bool) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			end, err := c.slot(ctx, of, place{DatabaseURL: org.DatabaseURL{Database: database}}.key(), child)
			if err == nil {
				t.Cleanup(end)
			}
			return err
		}
		for i := range 2 * maxChildrenPerOrg {
			if err := take("a", string(rune('a'+i/2)), true); (err == nil) != (i < maxChildrenPerOrg) || err != nil && !errors.Is(err, errBusy) {
				t.Errorf("process %d: %v", i+1, err)
			}
		}
		if err := errors.Join(take("a", "z", false), take("b", "a", true), take("b", "b", true)); err != nil {
			t.Error(err)
		}
	})
}

package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// checkHookKeys returns an error for a hook of the configuration file that names a key which its org does not have.
// A hook for such a key would run for nobody.
func checkHookKeys(ctx context.Context, file org.File, store org.Store) error {
	names := map[string]map[string]string{} // by org and key: where it is named
	for _, id := range slices.Sorted(maps.Keys(file.Orgs)) {
		f := file.Orgs[id]
		for i, h := range f.Record.Runtime.Hooks {
			for _, key := range h.Keys {
				if !slices.ContainsFunc(f.Keys, func(k org.Key) bool { return k.ID == key }) {
					if names[id] == nil {
						names[id] = map[string]string{}
					}
					names[id][key] = fmt.Sprintf("org %s: runtime.hooks[%d].keys: there is no key %q; use the name of a key of the file, or the id of a key that GET /api/keys lists", id, i, key)
				}
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := store.EachOrg(ctx, func(c org.Contents) error {
		for _, k := range c.Keys {
			delete(names[c.ID], k.ID)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(names)) {
		for _, key := range slices.Sorted(maps.Keys(names[id])) {
			return errors.New(names[id][key])
		}
	}
	return nil
}

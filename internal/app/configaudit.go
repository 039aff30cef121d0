package app

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// configurationFile is the file in the data directory with the settings that were read
// last, without credentials.
const configurationFile = "configuration.json"

// recordConfiguration records in the audit log what has changed in the configuration since
// it was read last, and remembers it. The first configuration is no change. A failure is
// logged: it must not keep the gateway from serving.
func (a *auditing) recordConfiguration(ctx context.Context, c *config.Config) {
	path := filepath.Join(a.config.Data, configurationFile)
	now, before := c.Shown(), map[string]string{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &before)
	}
	switch {
	case err == nil:
		err = a.recordChanges(ctx, configChanges(before, now))
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil && !maps.Equal(before, now) {
		err = replaceJSON(path, now)
	}
	if err != nil {
		a.log.Error("changes of the configuration may be missing in the audit log", "error", err)
	}
}

// recordChanges records changes by the operator: in the operator's audit log, and those of
// an org in that of the org too.
func (a *auditing) recordChanges(ctx context.Context, changes []audit.Management) error {
	by := org.Author{Principal: org.Operator, At: clock.Wall().UnixMilli()}
	for _, m := range changes {
		chains := []string{org.Operator}
		if m.Org != org.Operator {
			chains = by.Chains(m.Org)
		}
		for _, chain := range chains {
			if err := a.store.Record(ctx, chain, audit.Entry{Kind: audit.KindManagement, At: by.At, Principal: by.Principal, Body: m}); err != nil {
				return err
			}
		}
	}
	return a.store.SyncAudit(ctx) // a reader of the log that says so finds the rows
}

// configChange returns the change of a setting, or of an item of a list. Nil is an item that
// does not exist.
func configChange(path string, before, after map[string]string) audit.Management {
	m := audit.Management{Org: org.Operator, Resource: "configuration", ID: path, Action: "update"}
	if id, _, ok := strings.Cut(strings.TrimPrefix(path, "orgs["), "]"); ok && strings.HasPrefix(path, "orgs[") {
		m.Org = id
	}
	if before == nil {
		m.Action = "create"
	} else {
		m.Before = before
	}
	if after == nil {
		m.Action = "delete"
	} else {
		m.After = after
	}
	return m
}

// configChanges compares two results of [config.Config.Shown], in the order of their paths.
// An item that was added or removed is one change.
func configChanges(before, after map[string]string) (all []audit.Management) {
	whole := "" // the item whose settings are skipped
	for _, path := range slices.Sorted(maps.Keys(union(before, after))) {
		was, existed := before[path]
		is, exists := after[path]
		switch {
		case whole != "" && strings.HasPrefix(path, whole+"."), existed && exists && was == is:
		case config.IsItem(path):
			whole = path
			all = append(all, configChange(path, within(before, path), within(after, path)))
		case existed && exists:
			all = append(all, configChange(path, map[string]string{"value": was}, map[string]string{"value": is}))
		} // otherwise another version of the program has other settings
	}
	return all
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// within returns the settings of an item, nil if there is no such item.
func within(all map[string]string, item string) map[string]string {
	if _, ok := all[item]; !ok {
		return nil
	}
	out := map[string]string{}
	for path, value := range all {
		if name, ok := strings.CutPrefix(path, item+"."); ok && !config.IsItem(path) {
			out[name] = value
		}
	}
	return out
}

// replaceJSON writes the file whole, or leaves it as it is.
func replaceJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

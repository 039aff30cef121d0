package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/rates"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	resolve "github.com/turnpike-gateway/turnpike/internal/settings"
)

// reloadTimeout is the deadline of a Reload.
const reloadTimeout = time.Minute

// settings are what the gateway works with of its configuration. A Reload replaces them.
type settings struct {
	config *config.Config
	keys   *config.Secrets
}

// live is what is read from the latest configuration.
type live struct {
	current atomic.Pointer[settings]
	agents  atomic.Pointer[declaredAgents]
	card    atomic.Pointer[money.Card] // the prices of models
	prices  prices
}

// Reload applies the changes of a new configuration that can be applied while the gateway
// serves (config.Change.Live), for requests that begin afterwards, and logs every change.
// Credentials are looked up again. A change that needs a restart has no effect. If a
// credential cannot be looked up, the error is a *config.Error and nothing is applied.
// Another error comes from the store: the next Reload applies what this one has not.
//
// Reload is called by one goroutine at a time, between the begin of Serve and Close.
func (a *App) Reload(ctx context.Context, c *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	keys, err := c.Resolve(ctx, a.secrets)
	if err != nil {
		return err
	}
	was, next := a.live.current.Load(), &settings{c, keys}
	changes := config.Changes(was.config, c)
	credentials := changedCredentials(was.keys, keys)
	inProviders := func(c config.Change) bool { return c.Within("providers") || c.Within("routes") || c.Within("models") }
	newProviders := slices.ContainsFunc(changes, inProviders) || len(changedValues(was.keys.Providers, keys.Providers)) > 0
	if err := a.apply(ctx, next, newProviders); err != nil {
		return err
	}
	a.replicas.Settle(ctx)
	if days := c.Runs.RetentionDays; days != was.config.Runs.RetentionDays {
		a.retention.stop()
		a.retention.start(ctx, days)
	}
	a.audit.recordConfiguration(ctx, c)
	count := len(credentials)
	if !bytes.Equal(config.FormatRates(was.config.RateRows), config.FormatRates(c.RateRows)) {
		count++
		a.log.Info("configuration changed: prices of models", "file", c.Rates, "rows", len(c.RateRows))
	}
	for _, path := range credentials {
		m := configChange(path, map[string]string{}, map[string]string{})
		m.Action = "replace"
		if err := a.audit.recordChanges(ctx, []audit.Management{m}); err != nil {
			a.log.Error("a changed credential may be missing in the audit log", "key", path, "error", err)
		}
		a.log.Info("configuration changed: a credential has another value", "key", path)
	}
	for _, change := range changes {
		if change.Live {
			count++
			a.log.Info("configuration changed", "key", change.Path, "old", change.Old, "new", change.New)
		}
	}
	for _, change := range config.Changes(a.config, c) { // since the start
		if !change.Live {
			count++
			a.log.Warn("configuration changed: the change needs a restart", "key", change.Path, "old", change.Old, "new", change.New)
		}
	}
	a.warnOfShortKeys(c, keys)
	a.warnOfKeys(c)
	a.log.Info("the configuration was read again", "changes", count)
	return nil
}

// apply makes next what the gateway works with. Providers that have not changed keep what
// they have listed.
func (a *App) apply(ctx context.Context, next *settings, newProviders bool) error {
	card, err := rates.Card(next.config.RateRows)
	if err != nil {
		return err
	}
	var providers []route.Provider
	if newProviders {
		if providers, err = a.adapters.build(next); err != nil {
			return err
		}
	}
	file := directory.FromFile(next.config, next.keys)
	if err := checkHookKeys(ctx, file, a.store); err != nil {
		return err // nothing was applied
	}
	if err := a.directory.SetFromFile(ctx, file); err != nil {
		return err // also for an org whose id cannot be used: nothing was applied
	}
	if err := storeWebhooks(ctx, a.directory.FileWebhooks(), a.store, a.log); err != nil {
		return err
	}
	agents, err := declareAgents(ctx, next.config, a.store, a.log)
	if err != nil {
		return err
	}
	a.live.agents.Store(&agents)
	if err := a.store.SetCaps(ctx, next.config.OrgCaps); err != nil {
		return err
	}
	if newProviders {
		a.models.Replace(providers, next.config.Ordered()...)
	}
	a.out.SetPolicy(OutboundPolicy(next.config.Outbound.SSRF))
	a.runner.SetMaxFollowers(next.config.MaxFollowersPerRun)
	a.disk.setFloor(next.config.MinFreeDiskMiB)
	a.live.card.Store(card)
	a.live.current.Store(next)
	return nil
}

// changedCredentials returns the keys whose references lead to another credential now.
func changedCredentials(was, is *config.Secrets) (paths []string) {
	for _, name := range changedValues(was.Providers, is.Providers) {
		paths = append(paths, fmt.Sprintf("providers[%s].api_key", name))
	}
	if !was.Dispatch.IsZero() && !is.Dispatch.IsZero() && !is.Dispatch.Equal(was.Dispatch) {
		paths = append(paths, "tool_dispatch_secret")
	}
	for _, orgID := range slices.Sorted(maps.Keys(was.Keys)) {
		for _, name := range changedValues(was.Keys[orgID], is.Keys[orgID]) {
			paths = append(paths, fmt.Sprintf("orgs[%s].keys[%s].key", orgID, name))
		}
	}
	for _, orgID := range slices.Sorted(maps.Keys(was.Webhooks)) {
		before, after := was.Webhooks[orgID], is.Webhooks[orgID]
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if now, kept := after[name]; kept && !now.Current.Equal(before[name].Current) {
				paths = append(paths, fmt.Sprintf("orgs[%s].webhooks[%s].secret", orgID, name))
			}
		}
	}
	return paths
}

// changedValues returns the names whose values are in both maps, and differ.
func changedValues(was, is map[string]secret.Value) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if value, ok := is[name]; ok && value.Reveal() != was[name].Reveal() {
			names = append(names, name)
		}
	}
	return names
}

// providerKind returns the kind of a provider; "" if it is not configured.
func (l *live) providerKind(name string) string {
	providers := l.current.Load().config.Providers
	for i := range providers {
		if providers[i].Name == name {
			return providers[i].Kind
		}
	}
	return ""
}

// keepFor returns how long responses are stored: as long as their runs.
func (l *live) keepFor() time.Duration {
	const never = 36_500 // days: the most that can be set
	return time.Duration(cmp.Or(l.current.Load().config.Runs.RetentionDays, never)) * 24 * time.Hour
}

// compaction returns what the current configuration says of prompts that are too long.
func (l *live) compaction() resolve.Compaction {
	c := l.current.Load().config.Compaction
	return resolve.Compaction{Model: c.Model, ExcludeTools: c.ExcludeTools}
}

// maxRoundsCap returns the current max_rounds_cap; 0 = not set.
func (l *live) maxRoundsCap() int { return l.current.Load().config.MaxRoundsCap }

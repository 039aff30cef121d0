package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// MaxUsageSums is how many sums of usage there are of all orgs together. The earliest days are dropped first.
const MaxUsageSums = 16_384

// usageSums are the sums of the usage of all orgs. The zero value is empty.
type usageSums map[usageSumKey]*usageSum

type usageSumKey struct {
	org string
	audit.UsageKey
}

type usageSum struct {
	first, last int64 // numbers of the rows
	audit.UsageCounts
}

// add adds what the row with the number counts.
func (s *usageSums) add(orgID string, number int64, u audit.Usage) {
	if *s == nil {
		*s = usageSums{}
	}
	key := usageSumKey{orgID, u.UsageKey}
	if (*s)[key] == nil {
		s.boundNames(&key)
	}
	sum := (*s)[key]
	if sum == nil {
		sum = &usageSum{first: number}
		(*s)[key] = sum
		s.evict()
	}
	sum.last = number
	sum.Add(u.UsageCounts)
}

// boundNames empties the names of a new sum of which the org has too many on the day.
func (s *usageSums) boundNames(key *usageSumKey) {
	users, models := map[string]bool{"": true}, map[string]bool{"": true}
	for k := range *s {
		if k.org == key.org && k.Day == key.Day {
			users[k.EndUser], models[k.Model] = true, true
		}
	}
	if !users[key.EndUser] && len(users) > audit.MaxUsageUsers {
		key.EndUser, key.Rest = "", key.Rest|audit.RestUsers
	}
	if !models[key.Model] && len(models) > audit.MaxUsageModels {
		key.Model, key.Target, key.Rest = "", "", key.Rest|audit.RestModels
	}
}

// evict drops the earliest day if there are too many sums, unless it is the only one.
func (s *usageSums) evict() {
	if len(*s) <= MaxUsageSums {
		return
	}
	byDay := func(a, b usageSumKey) int { return cmp.Compare(a.Day, b.Day) }
	earliest := slices.MinFunc(slices.Collect(maps.Keys(*s)), byDay).Day
	if earliest == slices.MaxFunc(slices.Collect(maps.Keys(*s)), byDay).Day {
		return
	}
	maps.DeleteFunc(*s, func(k usageSumKey, _ *usageSum) bool { return k.Day == earliest })
}

// UsageSums implements audit.Sums.
func (j *Journal) UsageSums(_ context.Context, orgID string, q audit.UsageDays, each func(audit.Usage) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k, sum := range j.audit.sums {
		if k.org != orgID || k.Day < q.From || k.Day >= q.To {
			continue
		}
		if err := each(audit.Usage{UsageKey: k.UsageKey, UsageCounts: sum.UsageCounts}); err != nil {
			return err
		}
	}
	return nil
}

// EstimatedSince implements audit.Sums.
func (j *Journal) EstimatedSince(context.Context) (int64, error) { return 0, nil }

// UsageSpan implements audit.Sums.
func (j *Journal) UsageSpan(_ context.Context, orgID string, day int64) (first, last int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k, sum := range j.audit.sums {
		if k.org != orgID || k.Day != day {
			continue
		}
		if first == 0 || sum.first < first {
			first = sum.first
		}
		last = max(last, sum.last)
	}
	return first, last, nil
}

// PruneUsage implements audit.Log.
func (j *Journal) PruneUsage(_ context.Context, orgID string, day int64) (removed int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	had := len(j.audit.sums)
	maps.DeleteFunc(j.audit.sums, func(k usageSumKey, _ *usageSum) bool { return k.org == orgID && k.Day < day })
	return int64(had - len(j.audit.sums)), nil
}

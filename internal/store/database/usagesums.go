package database

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// usageSum is what the rows of a transaction add to one sum of usage.
type usageSum struct {
	org         string
	first, last int64 // numbers of the rows
	audit.Usage
}

// usageSums are those of a transaction or savepoint.
type usageSums struct {
	all   []usageSum
	index map[usageSumKey]int // into all
}

type usageSumKey struct {
	org string
	audit.UsageKey
}

// add adds what the row with the number of an entry counts.
func (u *usageSums) add(orgID string, number int64, e audit.Entry) {
	added, counts := e.Counted()
	if !counts {
		return
	}
	key := usageSumKey{orgID, added.UsageKey}
	i, known := u.index[key]
	if !known {
		if u.index == nil {
			u.index = map[usageSumKey]int{}
		}
		u.index[key] = len(u.all)
		u.all = append(u.all, usageSum{orgID, number, number, added})
		return
	}
	u.all[i].last = number
	u.all[i].Add(added.UsageCounts)
}

// forget empties u and keeps its room.
func (u *usageSums) forget() {
	clear(u.all)
	clear(u.index)
	u.all = u.all[:0]
}

// storeSums adds t.later.sums to the stored ones, in the order of their keys.
func (t *tx) storeSums() error {
	sums := t.later.sums.all
	slices.SortFunc(sums, func(a, b usageSum) int { return cmp.Or(strings.Compare(a.org, b.org), a.Compare(b.UsageKey)) })
	for i := range sums {
		if err := t.storeSum(&sums[i]); err != nil {
			return err
		}
	}
	return nil
}

// Columns of usage_sums: the key, and what is added up.
const (
	usageKeyColumns   = `org, day, end_user, rest, principal, model, provider, target, surface, agent`
	usageCountColumns = `requests, tool_calls, gpu_ms, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
	nano_usd, tool_nano_usd, estimated_input, estimated_output, estimated_nano_usd`
)

const updateUsage = `UPDATE usage_sums SET first_n = min(first_n, ?11), last_n = max(last_n, ?12), requests = requests + ?13, tool_calls = tool_calls + ?14, gpu_ms = gpu_ms + ?15,
	input_tokens = input_tokens + ?16, cached_tokens = cached_tokens + ?17, cache_write_tokens = cache_write_tokens + ?18,
	output_tokens = output_tokens + ?19, reasoning_tokens = reasoning_tokens + ?20, nano_usd = nano_usd + ?21, tool_nano_usd = tool_nano_usd + ?22,
	estimated_input = estimated_input + ?23, estimated_output = estimated_output + ?24, estimated_nano_usd = estimated_nano_usd + ?25
	WHERE org = ?1 AND day = ?2 AND end_user = ?3 AND rest = ?4 AND principal = ?5 AND model = ?6 AND provider = ?7 AND target = ?8
		AND surface = ?9 AND agent = ?10`

const insertUsage = `INSERT INTO usage_sums (` + usageKeyColumns + `, first_n, last_n, ` + usageCountColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// args returns the arguments of both statements.
func (s *usageSum) args() []any {
	k := &s.UsageKey
	args := append(make([]any, 0, 25),
		s.org, k.Day, k.EndUser, int(k.Rest), k.Principal, k.Model, k.Provider, k.Target, k.Surface, k.Agent, s.first, s.last)
	for _, n := range s.All() {
		args = append(args, *n)
	}
	return args
}

// storeSum adds s to the stored sum. Almost always there is one.
func (t *tx) storeSum(s *usageSum) error {
	if n, err := t.exec(updateUsage, s.args()...); err != nil || n > 0 {
		return err
	}
	if err := t.boundNames(s); err != nil {
		return err
	}
	if s.Rest != 0 {
		if n, err := t.exec(updateUsage, s.args()...); err != nil || n > 0 {
			return err
		}
		t.warnOfRest(s)
	}
	_, err := t.exec(insertUsage, s.args()...)
	return err
}

// maxWarned is how many orgs warned has.
const maxWarned = 1000

// warnOfRest logs that an org has too many names: about once a day for each kind.
func (t *tx) warnOfRest(s *usageSum) {
	told := usageRest{s.Day, s.Rest}
	if was := t.warned[s.org]; was.day == s.Day {
		if told.rest |= was.rest; told == was {
			return
		}
	}
	if t.warned == nil || len(t.warned) >= maxWarned {
		t.warned = map[string]usageRest{}
	}
	t.warned[s.org] = told
	t.log.Warn("an org has too many names for sums of usage of their own; the rest of the day is added up together",
		"org", s.org, "day", s.DayText(), "end_users", told.rest&audit.RestUsers != 0, "models", told.rest&audit.RestModels != 0)
}

// usageRest is what a day has too many of.
type usageRest struct {
	day  int64
	rest audit.UsageRest
}

// boundNames counts the names of a new sum that the day does not have yet, and empties those that are too
// many.
func (t *tx) boundNames(s *usageSum) error {
	newUser, newModel, err := t.newNames(s)
	if err != nil {
		return err
	}
	var users, models int
	if err := t.queryRow(`SELECT coalesce(max(end_users), 0), coalesce(max(models), 0) FROM usage_days WHERE org = ? AND day = ?`,
		[]any{s.org, s.Day}, &users, &models); err != nil {
		return err
	}
	if newUser && users >= audit.MaxUsageUsers {
		s.EndUser, s.Rest, newUser = "", s.Rest|audit.RestUsers, false
	}
	if newModel && models >= audit.MaxUsageModels {
		s.Model, s.Target, s.Rest, newModel = "", "", s.Rest|audit.RestModels, false
	}
	if !newUser && !newModel {
		return nil
	}
	if newModel {
		if _, err := t.exec(`INSERT INTO usage_models (org, day, model) VALUES (?, ?, ?)`, s.org, s.Day, s.Model); err != nil {
			return err
		}
	}
	_, err = t.exec(`INSERT INTO usage_days (org, day, end_users, models) VALUES (?, ?, ?, ?)
		ON CONFLICT (org, day) DO UPDATE SET end_users = usage_days.end_users + excluded.end_users, models = usage_days.models + excluded.models`,
		s.org, s.Day, newUser, newModel)
	return err
}

// newNames reports whether the end user and the model of s have no sum on the day.
func (t *tx) newNames(s *usageSum) (user, model bool, err error) {
	if s.EndUser != "" {
		err = t.queryRow(`SELECT NOT EXISTS (SELECT 1 FROM usage_sums WHERE org = ? AND day = ? AND end_user = ?)`, []any{s.org, s.Day, s.EndUser}, &user)
	}
	if s.Model != "" && err == nil {
		err = t.queryRow(`SELECT NOT EXISTS (SELECT 1 FROM usage_models WHERE org = ? AND day = ? AND model = ?)`, []any{s.org, s.Day, s.Model}, &model)
	}
	return user, model, err
}

// usageColumns are the columns of what sums can be grouped by.
func usageColumns() map[string]string {
	return map[string]string{
		audit.ByKey: "principal", audit.ByModel: "model", audit.ByProvider: "provider", audit.ByTarget: "target", audit.ByAgent: "agent",
		audit.ByEndUser: "end_user", audit.ByDay: "day",
	}
}

// UsageSums implements audit.Sums.
func (r *Reader) UsageSums(ctx context.Context, orgID string, q audit.UsageDays, each func(audit.Usage) error) error {
	var columns []string
	for _, name := range q.By {
		columns = append(columns, usageColumns()[name])
	}
	columns = append(columns, "rest")
	columnOf := func(name, none string) string {
		if slices.Contains(columns, name) {
			return name
		}
		return none
	}
	key := fmt.Sprintf("%s, %s, rest, %s, %s, %s, %s, '', %s", columnOf("day", "0"), columnOf("end_user", "''"), columnOf("principal", "''"),
		columnOf("model", "''"), columnOf("provider", "''"), columnOf("target", "''"), columnOf("agent", "''"))
	var sums []string
	for column := range strings.SplitSeq(usageCountColumns, ",") {
		sums = append(sums, "CAST(sum("+strings.TrimSpace(column)+") AS BIGINT)")
	}
	rows, err := r.db.QueryContext(ctx, `SELECT count(*), `+key+`, `+strings.Join(sums, ", ")+
		` FROM (SELECT * FROM usage_sums WHERE org = ? AND day >= ? AND day < ? LIMIT ?) AS days GROUP BY `+strings.Join(columns, ", "),
		orgID, q.From, q.To, audit.MaxUsageSums+1)
	if err != nil {
		return r.wrap("read the sums of usage", err)
	}
	defer rows.Close()
	for read := 0; rows.Next(); {
		n, u, err := scanUsage(rows)
		if err != nil {
			return r.wrap("read the sums of usage", err)
		}
		if read += n; read > audit.MaxUsageSums {
			return audit.ErrUsageSums
		}
		if err := each(u); err != nil {
			return err
		}
	}
	return r.wrap("read the sums of usage", rows.Err())
}

// scanUsage returns a group, and of how many sums it is.
func scanUsage(row scanner) (n int, u audit.Usage, err error) {
	to := []any{&n, &u.Day, &u.EndUser, &u.Rest, &u.Principal, &u.Model, &u.Provider, &u.Target, &u.Surface, &u.Agent}
	for _, count := range u.All() {
		to = append(to, count)
	}
	err = row.Scan(to...)
	return n, u, err
}

// UsageSpan implements audit.Sums.
func (r *Reader) UsageSpan(ctx context.Context, orgID string, day int64) (first, last int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT coalesce(min(first_n), 0), coalesce(max(last_n), 0) FROM usage_sums WHERE org = ? AND day = ?`, orgID, day).Scan(&first, &last)
	return first, last, r.wrap("read the sums of usage", err)
}

// EstimatedSince implements audit.Sums.
func (r *Reader) EstimatedSince(ctx context.Context) (at int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT coalesce(max(since), 0) FROM usage_estimates`).Scan(&at)
	return at, r.wrap("read the sums of usage", err)
}

// UsageRest returns the orgs that have more names on the day than sums of their own, ordered, with what they have too many of.
func (r *Reader) UsageRest(ctx context.Context, day int64) ([]UsageRest, error) {
	out, err := list(ctx, r.db, func(row scanner) (u UsageRest, err error) {
		err = row.Scan(&u.Org, &u.Users, &u.Models)
		return u, err
	}, `SELECT d.org, max(s.rest & 1), max(s.rest & 2) > 0 FROM usage_days d CROSS JOIN usage_sums s ON s.org = d.org AND s.day = d.day
		WHERE d.day = ? AND (d.end_users >= ? OR d.models >= ?) AND s.rest > 0 GROUP BY d.org ORDER BY d.org`, day, audit.MaxUsageUsers, audit.MaxUsageModels)
	return out, r.wrap("read the sums of usage", err)
}

// UsageRest says what an org has more of on a day than sums of their own.
type UsageRest struct {
	Org           string
	Users, Models bool
}

// PruneUsage implements audit.Log.
func (s *Store) PruneUsage(ctx context.Context, orgID string, day int64) (removed int64, err error) {
	for i, text := range []string{
		`DELETE FROM usage_sums WHERE (` + usageKeyColumns + `) IN (SELECT ` + usageKeyColumns + `
			FROM usage_sums WHERE org = ? AND day < ? LIMIT ?)`,
		`DELETE FROM usage_models WHERE (org, day, model) IN (SELECT org, day, model FROM usage_models WHERE org = ? AND day < ? LIMIT ?)`,
		`DELETE FROM usage_days WHERE (org, day) IN (SELECT org, day FROM usage_days WHERE org = ? AND day < ? LIMIT ?)`,
	} {
		if err := s.repeatWrite(ctx, orgID, func(t *tx) (int64, error) {
			n, err := t.exec(text, orgID, day, pruneBatch)
			if i == 0 {
				removed += n
			}
			return n, err
		}); err != nil {
			return removed, s.wrap("remove sums of usage", err)
		}
	}
	return removed, nil
}

package audit

import "context"

// PageReads is the most rows that a page looks at.
const PageReads = 20_000

// Page returns the earliest rows that q selects, and the number after which the next page begins; 0 = there
// is none. It looks at no more than [PageReads] rows: a page can have fewer rows than q.Limit, even none,
// although further ones follow.
func Page(ctx context.Context, org string, rows Rows, q Query) (page []Row, next int64, err error) {
	q = q.Bounded()
	if !q.reads() {
		page, err = rows.AuditRows(ctx, org, q)
		return page, q.after(page), err
	}
	first, err := rows.AuditRows(ctx, org, Query{After: q.After, Limit: 1}) // earlier ones may be deleted
	if err != nil || len(first) == 0 {
		return nil, 0, err
	}
	q.Before = first[0].Number + PageReads
	page, err = rows.AuditRows(ctx, org, q)
	if next = q.after(page); err != nil || next > 0 {
		return page, next, err
	}
	more, err := rows.AuditRows(ctx, org, Query{After: q.Before - 1, Limit: 1})
	if len(more) > 0 {
		next = q.Before - 1
	}
	return page, next, err
}

// reads reports whether a store reads rows that q does not select.
func (q Query) reads() bool {
	found := q.RunID != "" || len(q.RequestIDs) > 0 || q.Kind.Rare()
	return !found && (q.Kind != "" || q.Principal != "" || q.From > 0 || q.To > 0)
}

// after returns the number of the last row of a full page.
func (q Query) after(page []Row) int64 {
	if n := len(page); n > 0 && n == q.Limit {
		return page[n-1].Number
	}
	return 0
}

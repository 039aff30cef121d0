package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/item"
)

// The input of a run that continues a conversation is the input of the run before it, the answer to that, and a few new
// items; the parts of a named conversation are those that it had a turn ago, and one more. Such lists are stored as chains:
// a row of shared_lists has the elements that follow those of another row, and is named by a digest of all elements up to its
// end. A new list is looked up by where each of its elements ends, the longest first, and adds only what follows.
//
// Nothing else is shared: what anybody knows of a conversation plays no part, so that one that was changed, shortened or
// deleted makes a list that shares what is still the same.
//
// A row counts its uses. What names it gives its use back when it is deleted (triggers do that), and dropLists deletes
// those without.
const (
	minItems = 4 << 10 // bytes of items that are stored as a list; fewer stay in the row of their run, which is one row less
	minParts = 1 << 10 // bytes of the ids of parts

	maxEnds   = 1 << 10 // how many ends of a list are looked up. One that adds more elements is stored whole
	firstEnds = 16      // most add fewer

	digestBytes = 16
)

// sharedList is a list that is stored as a chain.
type sharedList struct {
	elements []json.RawMessage
	digests  []string // of the elements up to each
	bytes    int
}

// newShared returns nil if the elements have less than least bytes. kind keeps lists apart whose elements look alike.
func newShared(kind string, elements []json.RawMessage, least int) *sharedList {
	l := &sharedList{elements: elements}
	for _, e := range elements {
		l.bytes += len(e) + 1
	}
	if l.bytes < least {
		return nil
	}
	sum := sha256.New()
	sum.Write([]byte(kind))
	for _, e := range elements {
		sum.Write([]byte{0}) // in no JSON
		sum.Write(e)
		l.digests = append(l.digests, hex.EncodeToString(sum.Sum(nil)[:digestBytes]))
	}
	return l
}

// digest returns that of all elements, and NULL for nil.
func (l *sharedList) digest() any {
	if l == nil {
		return nil
	}
	return l.digests[len(l.digests)-1]
}

// newPromptRow returns the row of what a run begins with.
func newPromptRow(ref string, value journal.Prompt) (row, error) {
	front, err := value.Front.Encode()
	if err != nil {
		return row{}, err
	}
	rest, err := value.Rest.Encode()
	if err != nil {
		return row{}, err
	}
	shared := newShared("items of version "+strconv.Itoa(item.Version), rest, minItems)
	if shared == nil {
		front = slices.Concat(front, rest)
	}
	return row{ref, item.Join(front), shared}, nil
}

// newPartsRow returns the row of the ids of the parts that stand in front of a run.
func newPartsRow(ref string, ids journal.Parts) (row, error) {
	shared, err := sharedParts(ids)
	if err != nil || shared != nil {
		return row{ref, []byte("[]"), shared}, err
	}
	body, err := json.Marshal(ids)
	return row{ref: ref, body: body}, err
}

// sharedParts returns nil if ids are too few.
func sharedParts(ids []string) (*sharedList, error) {
	elements := make([]json.RawMessage, len(ids))
	for i, id := range ids {
		var err error
		if elements[i], err = json.Marshal(id); err != nil {
			return nil, err
		}
	}
	return newShared("parts", elements, minParts), nil
}

// storeList stores the list, which may be nil, and counts a use of it.
func (t *tx) storeList(orgID string, l *sharedList) error {
	if l == nil {
		return nil
	}
	before, n, size, err := t.findList(orgID, l)
	if err != nil {
		return err
	}
	if before != "" {
		if _, err := t.exec(`UPDATE shared_lists SET uses = uses + 1 WHERE org = ? AND digest = ?`, orgID, before); err != nil {
			return err
		}
	}
	if n == len(l.elements) {
		return nil
	}
	body := joined(l.elements[n:])
	if _, err = t.exec(`INSERT INTO shared_lists (org, digest, before, elements, bytes, uses, body)
		VALUES (?, ?, ?, ?, ?, 1, CAST(? AS TEXT))`, orgID, l.digest(), before, len(l.elements), size+len(body)+1, body); err != nil {
		return err
	}
	return t.addUsage(orgID, sizeOfList+len(body), 0, 0)
}

// findList returns the longest list of the org that l begins with, or is.
func (t *tx) findList(orgID string, l *sharedList) (digest string, elements, size int, err error) {
	ends := l.digests[max(0, len(l.digests)-maxEnds):]
	for some := min(len(ends), firstEnds); len(ends) > 0; some = len(ends) {
		tried, err := json.Marshal(ends[len(ends)-some:])
		if err != nil {
			return "", 0, 0, err
		}
		err = t.queryRow(`SELECT digest, elements, bytes FROM json_each(?2) j CROSS JOIN shared_lists l ON l.org = ?1 AND l.digest = j.value
			ORDER BY elements DESC LIMIT 1`, []any{orgID, string(tried)}, &digest, &elements, &size)
		if !errors.Is(err, sql.ErrNoRows) {
			return digest, elements, size, err
		}
		ends = ends[:len(ends)-some]
	}
	return "", 0, 0, nil
}

// unusedLists reports whether there are lists that nothing uses.
func (r *Reader) unusedLists(ctx context.Context) (found bool, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM shared_lists INDEXED BY shared_lists_unused WHERE uses = 0)`).Scan(&found)
	return found, err
}

// dropLists deletes the lists that nothing uses. The one in front of one can then be unused, too.
func (s *Store) dropLists(ctx context.Context) error {
	_, err := s.deleteDue(ctx, due{table: "shared_lists", index: "shared_lists_unused", keys: []string{"digest"}, condition: `uses = 0`})
	return err
}

// partsOf is SQL for the parts of a conversation c, with a comma between two: NULL where its body names all, and empty if not all of
// the list is there. The ids of the most parts that a conversation may have are some 40 KB.
const partsOf = `CASE WHEN c.parts IS NOT NULL THEN (WITH RECURSIVE chain (org, before, elements, body) AS (
			SELECT l.org, l.before, l.elements, l.body FROM shared_lists l WHERE (l.org, l.digest) = (c.org, c.parts)
			UNION ALL SELECT l.org, l.before, l.elements, l.body
			FROM chain CROSS JOIN shared_lists l ON l.org = chain.org AND l.digest = chain.before)
		SELECT CASE max(CASE before WHEN '' THEN 1 ELSE 0 END) WHEN 1 THEN string_agg(body, ',' ORDER BY elements) ELSE '' END FROM chain) END`

// storedRow is a row of a run as it is stored, with the digest of what follows in its list; "" = nothing does.
type storedRow struct {
	ref, rest string
	body      []byte
}

// whole returns the body with what follows in its list. SQLite would hold long lists several times, or write them into a
// temporary file, to put them together.
func (r storedRow) whole(ctx context.Context, db querier, orgID string) ([]byte, error) {
	if r.rest == "" {
		return r.body, nil
	}
	type link struct {
		digest, before string
		body           []byte
	}
	links, err := list(ctx, db, func(row scanner) (l link, err error) { return l, row.Scan(&l.digest, &l.before, &l.body) },
		`WITH RECURSIVE chain (digest, before) AS (
			SELECT digest, before FROM shared_lists WHERE org = ?1 AND digest = ?2
			UNION ALL SELECT l.digest, l.before FROM chain CROSS JOIN shared_lists l ON l.org = ?1 AND l.digest = chain.before)
		SELECT l.digest, l.before, l.body FROM chain CROSS JOIN shared_lists l ON l.org = ?1 AND l.digest = chain.digest`, orgID, r.rest)
	if err != nil {
		return nil, err
	}
	byDigest := make(map[string]link, len(links))
	for _, l := range links {
		byDigest[l.digest] = l
	}
	bodies := make([][]byte, len(links))
	next := r.rest
	for i := range links {
		bodies[len(links)-1-i], next = byDigest[next].body, byDigest[next].before
	}
	if len(links) == 0 || next != "" {
		return nil, nil // which no reader of the row decodes
	}
	return extended(r.body, bodies...), nil
}

// extended returns JSON that ends with an array, with further elements in it; nil = none. It returns what no reader decodes if
// they are empty, because something is missing then.
func extended(body []byte, rest ...[]byte) []byte {
	if rest[0] == nil {
		return body
	}
	end := bytes.LastIndexByte(body, ']')
	if len(rest[0]) == 0 || end < 1 {
		return nil
	}
	n := len(body)
	for _, elements := range rest {
		n += 1 + len(elements)
	}
	out := append(make([]byte, 0, n), body[:end]...)
	for _, elements := range rest {
		if out[len(out)-1] != '[' {
			out = append(out, ',')
		}
		out = append(out, elements...)
	}
	return append(out, body[end:]...)
}

// joined returns the elements with a comma between two.
func joined(elements []json.RawMessage) []byte {
	n := 0
	for _, e := range elements {
		n += len(e) + 1
	}
	out := make([]byte, 0, n)
	for i, e := range elements {
		out = append(appendComma(out, i), e...)
	}
	return out
}

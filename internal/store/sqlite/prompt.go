package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/item"
)

// The input of a run that continues a conversation is the input of the run before it, the answer to that, and a few new
// items. It is stored as a chain: a row of prompts has the items that follow those of another row, and is named by a
// digest of all items up to its end. A new prompt is looked up by what each of its items ends, the longest first, and adds
// only what follows. Nothing else is shared: what a caller or a store knows of a conversation plays no part, so that a
// deleted, changed or shortened conversation makes a prompt that shares what is still the same.
//
// A row counts its uses. Deleting a run gives its use back; unused rows are deleted by dropPrompts.
const (
	minPrompt = 4 << 10 // bytes; a smaller one is stored in its run, with one row less

	// maxPromptLookups is how many ends of a prompt are looked up. A turn that adds more items stores all of its prompt.
	maxPromptLookups  = 1 << 10
	someFirstLookups  = 16 // most turns add fewer items
	promptDigestBytes = 16
)

// prompt is a list of items that is stored as a chain.
type prompt struct {
	items   []json.RawMessage
	digests []string // of the items up to each
	bytes   int
}

// newPromptRow returns the row of a value: with a prompt if it is large enough to be stored as one.
func newPromptRow(ref string, value journal.Prompt) (row, error) {
	front, err := value.Front.Encode()
	if err != nil {
		return row{}, err
	}
	items, err := value.Rest.Encode()
	if err != nil {
		return row{}, err
	}
	p := &prompt{items: items}
	for _, it := range items {
		p.bytes += len(it) + 1
	}
	if p.bytes < minPrompt {
		return row{ref: ref, body: item.Join(slices.Concat(front, items))}, nil
	}
	h := sha256.New()
	for _, it := range items {
		h.Write(it)
		h.Write([]byte{0}) // in no JSON
		p.digests = append(p.digests, hex.EncodeToString(h.Sum(nil)[:promptDigestBytes]))
	}
	return row{ref, item.Join(front), p}, nil
}

// all returns the digest of all items.
func (p *prompt) all() string { return p.digests[len(p.digests)-1] }

// storePrompts stores what rows have of prompts.
func (t *tx) storePrompts(orgID string, rows []row) error {
	for i := range rows {
		if rows[i].prompt == nil {
			continue
		}
		if err := t.storePrompt(orgID, rows[i].prompt); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) storePrompt(orgID string, p *prompt) error {
	before, n, bytes, err := t.findPrompt(orgID, p)
	if err != nil {
		return err
	}
	if before != "" {
		if _, err := t.exec(`UPDATE prompts SET uses = uses + 1 WHERE org = ? AND digest = ?`, orgID, before); err != nil {
			return err
		}
	}
	if n == len(p.items) {
		return nil
	}
	body := item.Join(p.items[n:])
	_, err = t.exec(`INSERT INTO prompts (org, digest, before, items, bytes, uses, body) VALUES (?, ?, ?, ?, ?, 1, CAST(? AS TEXT))`,
		orgID, p.all(), before, len(p.items), bytes+len(body), body)
	if err != nil {
		return err
	}
	return t.addUsage(orgID, sizeOfPrompt+len(body), 0, 0)
}

// findPrompt returns the longest prompt of the org that p begins with, or is.
func (t *tx) findPrompt(orgID string, p *prompt) (digest string, items, bytes int, err error) {
	ends := p.digests[max(0, len(p.digests)-maxPromptLookups):]
	for some := min(len(ends), someFirstLookups); len(ends) > 0; some = len(ends) {
		list, err := json.Marshal(ends[len(ends)-some:])
		if err != nil {
			return "", 0, 0, err
		}
		err = t.queryRow(`SELECT digest, items, bytes FROM json_each(?2) j CROSS JOIN prompts p ON p.org = ?1 AND p.digest = j.value ORDER BY items DESC LIMIT 1`,
			[]any{orgID, string(list)}, &digest, &items, &bytes)
		if !errors.Is(err, sql.ErrNoRows) {
			return digest, items, bytes, err
		}
		ends = ends[:len(ends)-some]
	}
	return "", 0, 0, nil
}

// dropPrompts deletes some prompts that nothing uses, and returns their number. The one in front of one can then be unused, too.
func (t *tx) dropPrompts() (int64, error) {
	return t.deleteSome(`DELETE FROM prompts WHERE rowid IN (SELECT rowid FROM prompts INDEXED BY prompts_unused WHERE uses = 0 LIMIT 16)`)
}

// storedRow is a row of run_rows. An empty prompt means that body is all of it.
type storedRow struct {
	ref    string
	body   []byte
	prompt string
}

// whole returns the body with the items of the prompt behind its own.
func (r storedRow) whole(ctx context.Context, db querier, orgID string) ([]byte, error) {
	if r.prompt == "" {
		return r.body, nil
	}
	pieces, err := list(ctx, db, scanText, `WITH RECURSIVE chain (before, body) AS (
			SELECT before, body FROM prompts WHERE org = ?1 AND digest = ?2
			UNION ALL SELECT p.before, p.body FROM chain CROSS JOIN prompts p ON p.org = ?1 AND p.digest = chain.before)
		SELECT body FROM chain`, orgID, r.prompt)
	if err != nil {
		return nil, err
	}
	if len(pieces) == 0 {
		return nil, journal.Damaged(r.ref, fmt.Errorf("its prompt %s is missing", r.prompt))
	}
	var out item.List
	slices.Reverse(pieces)
	for _, piece := range append([]string{string(r.body)}, pieces...) {
		var some item.List
		if err := json.Unmarshal([]byte(piece), &some); err != nil {
			return nil, journal.Damaged(r.ref, err)
		}
		out = append(out, some...)
	}
	return out.MarshalJSON()
}

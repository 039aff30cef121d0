package postgres_test

import (
	"database/sql"
	"strings"
	"testing"
)

// do executes statements.
func do(t *testing.T, db *sql.DB, statements string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
}

// want compares the rows of a query, joined by spaces.
func want(t *testing.T, db *sql.DB, query, expected string) {
	t.Helper()
	if got := strings.Join(rows(t, db, query), " "); got != expected {
		t.Errorf("%s\n got %q\nwant %q", query, got, expected)
	}
}

const (
	usage   = `SELECT bytes || '/' || conversations || '/' || handovers FROM org_usage`
	someRun = `INSERT INTO runs (org, run_id, principal, surface, grade, model, status, finish_reason, rounds, calls, tokens, epoch, next_seq,
		created_at, updated_at, finished_at) SELECT 'o', 'run_' || i, '', '', '', '',
		CASE i WHEN 3 THEN 'running' ELSE 'done' END, '', 0, 0, 0, 1, 1, 1, 1, 1
		FROM generate_series(1, 3) i;`
	someUsage = `INSERT INTO org_usage VALUES ('o', 100000, 100, 10), ('other', 7, 7, 7);`
)

func TestWhatARunHasIsDeletedWithIt(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	do(t, db, someRun+someUsage+`
		INSERT INTO shared_lists VALUES ('o', 'a', '', 1, 1, 4, 'aa'), ('o', 'b', 'a', 2, 2, 1, 'bbb');
		INSERT INTO run_facts SELECT 'o', 'run_' || i, s, 1, 'k', NULL, 0, 1, 1, '0123456789'
			FROM generate_series(1, 3) i, generate_series(1, 4) s;
		INSERT INTO run_rows SELECT 'o', 'run_' || i, 'r', '{}', CASE WHEN i < 3 THEN 'a' ELSE 'b' END FROM generate_series(1, 3) i;
		INSERT INTO hook_messages (org, id, run_id, hook, agent, position, answer_ref, at) VALUES ('o', 'h', 'run_1', 'x', 0, 0, '', 1);
		INSERT INTO forgotten_runs VALUES ('o', 'run_2');
		DELETE FROM runs WHERE run_id IN ('run_1', 'run_2')`)
	want(t, db, `SELECT run_id || ' ' || count(*) FROM run_facts GROUP BY run_id`, "run_3 4")
	want(t, db, `SELECT run_id FROM run_rows`, "run_3")
	want(t, db, `SELECT count(*) FROM hook_messages`, "0")
	want(t, db, `SELECT count(*) FROM forgotten_runs`, "0")
	want(t, db, `SELECT digest || uses FROM shared_lists ORDER BY 1`, "a2 b1")
	want(t, db, usage+` WHERE org = 'o'`, "96596/100/10") // less two of 500, eight of 260, two of 162
	want(t, db, usage+` WHERE org = 'other'`, "7/7/7")
	do(t, db, `DELETE FROM runs`)
	want(t, db, `SELECT digest || uses FROM shared_lists ORDER BY 1`, "a2 b0")
	do(t, db, `DELETE FROM shared_lists WHERE uses = 0`)
	want(t, db, `SELECT digest || uses FROM shared_lists ORDER BY 1`, "a1")
	want(t, db, usage+` WHERE org = 'o'`, "94641/100/10") // less 500, four of 260, 162 and 253
}

const conversation = `INSERT INTO conversations (org, principal, key, version, previous, body, parts, saved_at, expires_at) VALUES `

func TestConversationsAreCounted(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	do(t, db, someUsage+`INSERT INTO shared_lists VALUES ('o', 'a', '', 1, 1, 2, 'aa');`+
		conversation+`('o', 'p', 'session:s1', 1, '', '12345', 'a', 1, 1), ('o', 'p', 'call:c', 1, '', '1', 'a', 1, 1);
		INSERT INTO conversation_keys VALUES ('o', 'p', 'k2', 'session:s1'), ('o', 'p', 'k3', 'session:s1');
		UPDATE conversations SET body = '999', parts = NULL WHERE key = 'session:s1'`)
	want(t, db, `SELECT digest || uses FROM shared_lists`, "a1")
	want(t, db, usage+` WHERE org = 'o'`, "99995/100/10")
	do(t, db, `DELETE FROM conversations`)
	want(t, db, `SELECT digest || uses FROM shared_lists`, "a0")
	want(t, db, usage+` WHERE org = 'o'`, "98891/98/9") // less 253, 251 and two of 300
	want(t, db, `SELECT count(*) FROM conversation_keys`, "0")
}

func TestASharedPartIsDeletedWithTheLastConversationThatHasIt(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	do(t, db, conversation+`('o', '', 'session:s1', 1, '', '1', NULL, 1, 1), ('o', '', 'session:s2', 1, '', '1', NULL, 1, 1),
			('o', '', 'response:x', 1, '', '1', NULL, 1, 1), ('o', '', 'response:y', 1, '', '1', NULL, 1, 1);
		INSERT INTO shared_parts VALUES ('o', 'response:x', 'session:s1'), ('o', 'response:x', 'session:s2'),
			('o', 'response:y', 'session:s2');
		DELETE FROM conversations WHERE key = 'session:s1'`)
	want(t, db, `SELECT key FROM conversations ORDER BY 1`, "response:x response:y session:s2")
	want(t, db, `SELECT part || ' ' || conversation FROM shared_parts ORDER BY 1`, "response:x session:s2 response:y session:s2")
	do(t, db, `DELETE FROM conversations WHERE key = 'session:s2'`)
	want(t, db, `SELECT key FROM conversations`, "")
	want(t, db, `SELECT part FROM shared_parts`, "")
}

func TestSegmentsThatAHeadLeavesAloneAreDeleted(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	keys := `SELECT key FROM conversations ORDER BY key`
	do(t, db, conversation+`('o', 'library:a', 'response:1', 1, '', '1', NULL, 1, 1),
		('o', 'library:a', 'response:2', 1, '1', '1', NULL, 1, 1),
		('o', 'library:a', 'response:3', 1, '2', '1', NULL, 1, 1), ('o', 'library:a', 'response:4', 1, '3', '1', NULL, 1, 1),
		('o', 'library:a', 'session:h', 1, '3', '1', NULL, 1, 1), ('o', 'library:a', 'session:g', 1, '1', '1', NULL, 1, 1),
		('o', 'library:b', 'response:4', 1, '3', '1', NULL, 1, 1);
		UPDATE conversations SET previous = '4' WHERE key = 'session:h'`)
	want(t, db, keys, "response:1 response:2 response:3 response:4 response:4 session:g session:h")
	do(t, db, `DELETE FROM conversations WHERE key = 'session:h'`) // session:g names 1
	want(t, db, keys, "response:1 response:4 session:g")
	do(t, db, `UPDATE conversations SET previous = 'none' WHERE key = 'session:g'`)
	want(t, db, keys, "response:4 session:g")
}

func TestWhatASessionHasIsDeletedWithIt(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	do(t, db, someRun+`INSERT INTO orgs VALUES ('o', '{}', '{}', 1, 1);
		INSERT INTO sessions (org, id, agent, principal, pinned, snapshot, created_at, updated_at)
			VALUES ('o', 'sess_1', '', '', 0, '{}', 1, 1);
		INSERT INTO session_turns (org, run_id, session, number, version, rounds, reasoning, created_at)
			VALUES ('o', 'run_2', 'sess_1', 1, 1, 1, 0, 1), ('o', 'run_3', 'sess_1', 2, 1, 1, 0, 1);
		INSERT INTO session_inputs (org, session, id, kind, principal, body, created_at) VALUES ('o', 'sess_1', 'i', '', '', '{}', 1);`+
		conversation+`('o', '', 'session:sess_1', 1, '', '1', NULL, 1, 1), ('o', '', 'session:items_1', 1, '', '1', NULL, 1, 1),
		('o', '', 'response:resp_3', 1, '', '1', NULL, 1, 1), ('o', '', 'response:resp_3p5', 1, '', '1', NULL, 1, 1),
		('o', '', 'response:resp_3x', 1, '', '1', NULL, 1, 1), ('o', '', 'response:resp_2p1', 1, '', '1', NULL, 1, 1);
		INSERT INTO shared_parts VALUES ('o', 'response:resp_2p1', 'session:sess_9');
		DELETE FROM sessions`)
	want(t, db, `SELECT key FROM conversations ORDER BY key`, "response:resp_2p1 response:resp_3x")
	want(t, db, `SELECT run_id FROM orphaned_runs`, "run_3")
	want(t, db, `SELECT count(*) FROM session_inputs`, "0")
}

func TestWaitingMessagesAndCachedAnswersAreCounted(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	counts := `SELECT waiting || '/' || given_up FROM webhooks`
	do(t, db, `INSERT INTO orgs VALUES ('o', '{}', '{}', 1, 1);
		INSERT INTO webhooks (org, name, url, events, sealed, created_at, updated_at) VALUES ('o', 'w', '', '[]', '', 1, 1);
		INSERT INTO outbox (org, id, webhook, event, object, subject, at, next_at, give_up_at)
			SELECT 'o', 'm' || i, 'w', '', '', '', 1, 1, 1 FROM generate_series(1, 5) i`)
	want(t, db, counts, "5/0")
	do(t, db, `UPDATE outbox SET ended_at = 5, outcome = 'given_up' WHERE id = 'm1';
		UPDATE outbox SET ended_at = 5, outcome = 'delivered' WHERE id = 'm2'`)
	want(t, db, counts, "3/1")
	do(t, db, `UPDATE outbox SET ended_at = 0, outcome = 'waiting' WHERE id = 'm2';
		DELETE FROM outbox WHERE id IN ('m1', 'm3', 'm4')`)
	want(t, db, counts, "2/1")

	sizes := `SELECT entries || '/' || bytes FROM tool_cache_sizes`
	do(t, db, `INSERT INTO tool_cache (org, name, kept_at, expires_at, mac, bytes, value)
		VALUES ('o', 'a', 1, 1, '', 10, ''), ('o', 'b', 1, 1, '', 5, '')`)
	want(t, db, sizes, "2/15")
	do(t, db, `DELETE FROM tool_cache WHERE name = 'a'`)
	want(t, db, sizes, "1/5")
	do(t, db, `DELETE FROM orgs`)
	want(t, db, `SELECT (SELECT count(*) FROM webhooks) + (SELECT count(*) FROM outbox)
		+ (SELECT count(*) FROM tool_cache) + (SELECT count(*) FROM tool_cache_sizes)`, "0")
}

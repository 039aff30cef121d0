package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// AgentConversation is a conversation of an agent of a program, without its turns. Times are Unix milliseconds.
type AgentConversation struct {
	Owner, ID    string
	Title        string
	Participants []string
	Metadata     map[string]string
	Summary      string // of the turns up to SummarizedThrough
	CreatedAt    int64
	UpdatedAt    int64
	ExpiresAt    int64 // 0 = never

	SummarizedThrough int64 // seq of a turn; 0 = none
}

// AgentTurn is a turn of such a conversation.
type AgentTurn struct {
	RunID  string
	Number int // in the run; 0 = its input
	Role   string
	Items  []item.Item
}

// AgentConversationKey identifies a conversation of an agent.
type AgentConversationKey struct{ Org, Owner, ID string }

// AppendAgentTurn appends a turn to a conversation, unless the run has appended one with the same number. A
// conversation that is missing or expired begins with it. ttl is counted from now; 0 = for ever. The
// write also deletes up to sweepBatch conversations that have expired. A turn of more than maxBytes as JSON
// is an error.
func (s *Store) AppendAgentTurn(
	ctx context.Context, key AgentConversationKey, turn AgentTurn, maxBytes int, ttl time.Duration,
) error {
	body, err := item.List(turn.Items).MarshalJSON()
	if err != nil {
		return fmt.Errorf("turn %d of run %s: %w", turn.Number, turn.RunID, err)
	}
	if len(body) > maxBytes {
		return fmt.Errorf("turn %d of run %s has %d bytes, and a turn may have %d",
			turn.Number, turn.RunID, len(body), maxBytes)
	}
	now := s.now()
	var expires int64
	if ttl > 0 {
		expires = now.Add(ttl).UnixMilli()
	}
	one := &write{awaited: true, org: key.Org, size: len(body), do: func(t *tx) error {
		if err := t.dropExpiredAgents(key, now.UnixMilli()); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO agent_conversations (org, owner, id, created_at, updated_at, expires_at)
			VALUES (?1, ?2, ?3, ?4, ?4, ?5)
			ON CONFLICT (org, owner, id) DO UPDATE SET updated_at = ?4, expires_at = ?5`,
			key.Org, key.Owner, key.ID, now.UnixMilli(), expires); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO agent_turns (org, owner, conversation, run_id, number, role, items, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (org, run_id, number) DO NOTHING`,
			key.Org, key.Owner, key.ID, turn.RunID, turn.Number, turn.Role, string(body), now.UnixMilli())
		return err
	}}
	return s.wrap("append a turn", s.writer.performOne(ctx, one))
}

// dropExpiredAgents deletes some conversations that have expired, and the one with the key if it has.
func (t *tx) dropExpiredAgents(key AgentConversationKey, now int64) error {
	_, err := t.exec(`DELETE FROM agent_conversations WHERE org = ? AND owner = ? AND id = ?
		AND expires_at > 0 AND expires_at <= ?`, key.Org, key.Owner, key.ID, now)
	if err == nil {
		_, err = t.exec(dropExpiredAgents, now, sweepBatch)
	}
	return err
}

const dropExpiredAgents = `DELETE FROM agent_conversations WHERE rowid IN
	(SELECT rowid FROM agent_conversations INDEXED BY agent_conversations_expire
	WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?)`

const agentColumns = `owner, id, title, participants, metadata, summary, summarized_through,
	created_at, updated_at, expires_at`

func scanAgentConversation(row scanner) (c AgentConversation, err error) {
	var participants, metadata []byte
	err = row.Scan(&c.Owner, &c.ID, &c.Title, &participants, &metadata, &c.Summary, &c.SummarizedThrough,
		&c.CreatedAt, &c.UpdatedAt, &c.ExpiresAt)
	if err == nil {
		err = errors.Join(json.Unmarshal(participants, &c.Participants), json.Unmarshal(metadata, &c.Metadata))
	}
	return c, err
}

// AgentConversation returns a conversation that has not expired, or an error that wraps [org.ErrNotFound].
func (s *Store) AgentConversation(ctx context.Context, key AgentConversationKey) (AgentConversation, error) {
	c, err := scanAgentConversation(s.db.QueryRowContext(ctx, `SELECT `+agentColumns+` FROM agent_conversations
		WHERE org = ? AND owner = ? AND id = ? AND (expires_at = 0 OR expires_at > ?)`,
		key.Org, key.Owner, key.ID, s.now().UnixMilli()))
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	return c, s.wrap("read a conversation", err)
}

// AgentConversations returns up to limit conversations of an owner that have not expired, those with the latest
// turn first, before one of them; "" = from the first.
func (s *Store) AgentConversations(
	ctx context.Context, orgID, owner, before string, limit int,
) ([]AgentConversation, error) {
	now := s.now().UnixMilli()
	out, err := list(ctx, s.db, scanAgentConversation, `SELECT `+agentColumns+` FROM agent_conversations
		WHERE org = ?1 AND owner = ?2 AND (expires_at = 0 OR expires_at > ?3)
		AND (?4 = '' OR (updated_at, id) < (SELECT updated_at, id FROM agent_conversations
			WHERE org = ?1 AND owner = ?2 AND id = ?4))
		ORDER BY updated_at DESC, id DESC LIMIT ?5`, orgID, owner, now, before, limit)
	return out, s.wrap("list conversations", err)
}

// AgentTurns returns the newest turns of a conversation after those that its summary stands for, the oldest
// first: at most that many, of at most maxBytes, and no run without its beginning.
func (s *Store) AgentTurns(
	ctx context.Context, key AgentConversationKey, after int64, most int, maxBytes int64,
) ([]AgentTurn, error) {
	turns, err := s.agentTurns(ctx, key, after, most, maxBytes)
	return turns, s.wrap("read the turns of a conversation", err)
}

func (s *Store) agentTurns(
	ctx context.Context, key AgentConversationKey, after int64, most int, maxBytes int64,
) ([]AgentTurn, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT run_id, number, role, items FROM agent_turns
		WHERE org = ? AND owner = ? AND conversation = ? AND seq > ? ORDER BY seq DESC LIMIT ?`,
		key.Org, key.Owner, key.ID, after, most+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var turns []AgentTurn
	for cut := ""; rows.Next(); {
		var turn AgentTurn
		var body []byte
		if err := rows.Scan(&turn.RunID, &turn.Number, &turn.Role, &body); err != nil {
			return nil, err
		}
		if maxBytes -= int64(len(body)); maxBytes < 0 || len(turns) == most {
			cut = turn.RunID
			turns = slices.DeleteFunc(turns, func(one AgentTurn) bool { return one.RunID == cut })
			break
		}
		var items item.List
		if err := json.Unmarshal(body, &items); err != nil {
			return nil, fmt.Errorf("turn %d of run %s: %w", turn.Number, turn.RunID, err)
		}
		turn.Items = items
		turns = append(turns, turn)
	}
	slices.Reverse(turns)
	return turns, rows.Err()
}

// SummarizeAgent stores a summary that stands for the turns of a conversation up to the last one of a run. The error
// wraps [org.ErrNotFound] if the conversation has no turn of the run.
func (s *Store) SummarizeAgent(ctx context.Context, key AgentConversationKey, throughRun, summary string) error {
	return s.changeAgent(ctx, "store a summary", `UPDATE agent_conversations SET summary = ?4,
		summarized_through = (SELECT max(seq) FROM agent_turns
			WHERE org = ?1 AND owner = ?2 AND conversation = ?3 AND run_id = ?5)
		WHERE org = ?1 AND owner = ?2 AND id = ?3
		AND EXISTS (SELECT 1 FROM agent_turns WHERE org = ?1 AND owner = ?2 AND conversation = ?3 AND run_id = ?5)`,
		key.Org, key.Owner, key.ID, summary, throughRun)
}

// DescribeAgent stores what a conversation is about. The error wraps [org.ErrNotFound] if it is missing.
func (s *Store) DescribeAgent(
	ctx context.Context, key AgentConversationKey, title string, participants []string, metadata map[string]string,
) error {
	if participants == nil {
		participants = []string{}
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	who, err := json.Marshal(participants)
	if err != nil {
		return err
	}
	what, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	return s.changeAgent(ctx, "describe a conversation", `UPDATE agent_conversations
		SET title = ?4, participants = ?5, metadata = ?6 WHERE org = ?1 AND owner = ?2 AND id = ?3`,
		key.Org, key.Owner, key.ID, title, string(who), string(what))
}

// DeleteAgent deletes a conversation with its turns. The error wraps [org.ErrNotFound] if it is missing.
func (s *Store) DeleteAgent(ctx context.Context, key AgentConversationKey) error {
	return s.changeAgent(ctx, "delete a conversation", `DELETE FROM agent_conversations
		WHERE org = ?1 AND owner = ?2 AND id = ?3`, key.Org, key.Owner, key.ID)
}

// changeAgent performs a statement that changes one conversation, whose key is the first three arguments.
func (s *Store) changeAgent(ctx context.Context, what, text string, args ...any) error {
	return s.wrap(what, s.writer.perform(ctx, func(t *tx) error {
		n, err := t.exec(text, args...)
		if err == nil && n == 0 {
			err = org.ErrNotFound
		}
		return err
	}))
}

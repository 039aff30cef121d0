-- +goose Up
-- +goose StatementBegin
-- Where the events of orgs are sent.
CREATE TABLE webhooks (
  org            TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name           TEXT    NOT NULL,
  url            TEXT    NOT NULL,
  events         TEXT    NOT NULL, -- JSON: patterns
  sealed         BLOB    NOT NULL, -- the secret that signs; opens with the operator's master key, under this org and name only
  previous       BLOB    NOT NULL DEFAULT x'', -- the secret before the latest rotation, sealed; empty = none
  previous_until INTEGER NOT NULL DEFAULT 0,
  stopped        TEXT    NOT NULL DEFAULT '', -- why nothing is sent; empty = it is
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  waiting        INTEGER NOT NULL DEFAULT 0, -- messages: the triggers below count
  given_up       INTEGER NOT NULL DEFAULT 0, -- messages since it was created
  PRIMARY KEY (org, name)
) STRICT;
CREATE INDEX webhooks_waiting ON webhooks (org, name) WHERE waiting > 0;

-- Messages for webhooks, one for each event and webhook. The rowid grows: of two, the one whose
-- event happened first has the least.
CREATE TABLE outbox (
  org           TEXT    NOT NULL,
  id            TEXT    NOT NULL, -- the webhook-id
  webhook       TEXT    NOT NULL,
  event         TEXT    NOT NULL,
  object        TEXT    NOT NULL,
  subject       TEXT    NOT NULL, -- messages with the same one are delivered in order
  at            INTEGER NOT NULL, -- when it happened
  outcome       TEXT    NOT NULL DEFAULT 'waiting', -- waiting, delivered, given_up
  attempts      INTEGER NOT NULL DEFAULT 0,
  next_at       INTEGER NOT NULL,
  give_up_at    INTEGER NOT NULL,
  claimed_until INTEGER NOT NULL DEFAULT 0,
  ended_at      INTEGER NOT NULL DEFAULT 0, -- 0 = it waits
  status        INTEGER NOT NULL DEFAULT 0,
  error         TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, webhook) REFERENCES webhooks (org, name) ON DELETE CASCADE
) STRICT;
CREATE INDEX outbox_due ON outbox (org, webhook, ended_at, next_at);
CREATE INDEX outbox_oldest ON outbox (org, webhook, at) WHERE ended_at = 0;
CREATE INDEX outbox_subject ON outbox (org, webhook, subject) WHERE ended_at = 0;
CREATE INDEX outbox_claimed ON outbox (claimed_until) WHERE claimed_until > 0;
CREATE INDEX outbox_ended ON outbox (ended_at) WHERE ended_at > 0;

CREATE TRIGGER outbox_added AFTER INSERT ON outbox WHEN new.ended_at = 0 BEGIN
  UPDATE webhooks SET waiting = waiting + 1 WHERE org = new.org AND name = new.webhook;
END;
CREATE TRIGGER outbox_changed AFTER UPDATE OF ended_at ON outbox WHEN (old.ended_at = 0) <> (new.ended_at = 0) BEGIN
  UPDATE webhooks SET waiting = waiting + iif(new.ended_at = 0, 1, -1), given_up = given_up + (new.outcome = 'given_up')
  WHERE org = new.org AND name = new.webhook;
END;
CREATE TRIGGER outbox_deleted AFTER DELETE ON outbox WHEN old.ended_at = 0 BEGIN
  UPDATE webhooks SET waiting = waiting - 1 WHERE org = old.org AND name = old.webhook;
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE outbox;
DROP TABLE webhooks;
-- +goose StatementEnd

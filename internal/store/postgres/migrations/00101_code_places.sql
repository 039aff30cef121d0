-- In which data directory a session of code has its variables and files.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE code_places (
  org     text COLLATE "C" NOT NULL,
  session text COLLATE "C" NOT NULL, -- a digest of its name, with its language
  place   text COLLATE "C" NOT NULL, -- the name of the data directory
  was     text COLLATE "C" NOT NULL DEFAULT '', -- the one before the last use; empty = that was the first
  used_at bigint           NOT NULL, -- by the clock of the server
  PRIMARY KEY (org, session)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX code_places_place ON code_places (place);
CREATE INDEX code_places_used ON code_places (used_at);
-- +goose StatementEnd

-- +goose Up
-- +goose StatementBegin
-- The snapshot of the agent of a turn that was queued; NULL = that of the session when the turn began.
ALTER TABLE session_turns ADD COLUMN snapshot TEXT;
-- The inputs that wait for the run of a turn: a message until the run begins, an interrupt until the run ends.
CREATE INDEX session_inputs_of_run ON session_inputs (org, run_id) WHERE processed_at IS NULL;
CREATE INDEX session_inputs_interrupts ON session_inputs (seq) WHERE processed_at IS NULL AND kind = 'interrupt';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX session_inputs_interrupts;
DROP INDEX session_inputs_of_run;
ALTER TABLE session_turns DROP COLUMN snapshot;
-- +goose StatementEnd

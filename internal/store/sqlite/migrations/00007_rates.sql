-- +goose Up
-- +goose StatementBegin
ALTER TABLE api_keys ADD COLUMN requests_per_minute INTEGER NOT NULL DEFAULT 0; -- 0 = no limit
ALTER TABLE api_keys ADD COLUMN burst INTEGER NOT NULL DEFAULT 0; -- 0 = as many as requests_per_minute
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE api_keys DROP COLUMN burst;
ALTER TABLE api_keys DROP COLUMN requests_per_minute;
-- +goose StatementEnd

-- +goose Up
-- +goose StatementBegin
-- Since when the estimated parts of usage_sums are known, in Unix milliseconds. No row: since the first sum.
CREATE TABLE usage_estimates (
  since INTEGER NOT NULL
) STRICT;
INSERT INTO usage_estimates SELECT unixepoch() * 1000 WHERE EXISTS (SELECT 1 FROM usage_sums);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE usage_estimates;
-- +goose StatementEnd

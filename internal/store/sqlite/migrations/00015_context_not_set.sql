-- +goose Up
-- +goose StatementBegin
-- "off" was also stored for orgs that have not set context. It begins to hold for runs of agents, which were not
-- asked about it: for those that have it now, nothing changes.
UPDATE orgs SET runtime = json_remove(runtime, '$.context') WHERE json_extract(runtime, '$.context') = 'off';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
SELECT 1; -- without the member, context is off
-- +goose StatementEnd

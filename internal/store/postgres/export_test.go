package postgres

import "github.com/jackc/pgx/v5"

// Config returns the settings of the connections.
func (o Options) Config() (*pgx.ConnConfig, error) { return o.config("database", o.URL) }

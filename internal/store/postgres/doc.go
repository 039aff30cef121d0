// Package postgres has what a store on PostgreSQL needs beside its statements, which are those of package database:
// connections, the schema and its migrations, the meaning of errors, and the doorbells by which replicas tell each other
// what has changed.
//
//	o := postgres.Options{URL: "postgres://turnpike@db.example.com/turnpike", Schema: "turnpike"}
//	v, err := postgres.Migrate(ctx, o) // the schema is there, and this build may use it
//	connector, err := o.Connector()    // for sql.OpenDB
//	bell := postgres.NewBell(o, v.Schema, db)
//	defer bell.Close()
//
// An installation is a schema. Several may share a database.
package postgres

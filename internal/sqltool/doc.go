// Package sqltool is the tools database_query and database_write on databases that an org configures: PostgreSQL and
// files of SQLite.
//
//	model ─► query ─► one statement? ─► tables and functions, by the database's own analysis ─► read-only transaction
//	                                                                                             │
//	model ◄── JSON, at most 50,000 characters ◄── rows, cut while they are read ◄────────────────┘
//
//	connections := sqltool.NewConnections(sqltool.ConnectionOptions{Dial: out.Guarded…, OperatorDial: out.Operator…})
//	defer connections.Close()
//	source := sqltool.New(sqltool.Options{Org: "acme", Connections: connections, Settings: settings, Secret: secret})
//
// A read-only transaction is not enough: functions read files and other sessions, and statements name other tables. So
// the database itself says which functions a query calls and which tables it names, before it is executed: PostgreSQL
// with its report about the analysed statement, SQLite with its authorizer. What is not known for certain is refused. A
// role that could get around this is refused when it connects. A query on a file of SQLite runs in a child process.
package sqltool

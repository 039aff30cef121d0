#!/bin/sh
# Makes the role of the gateway, which is no superuser, and its schema. The image of PostgreSQL runs this at its
# first start, in its own shell, which ends with the first error.
psql -v ON_ERROR_STOP=1 -v password="$TURNPIKE_DATABASE_PASSWORD" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE turnpike LOGIN NOSUPERUSER NOCREATEROLE PASSWORD :'password';
CREATE SCHEMA turnpike AUTHORIZATION turnpike;
SQL

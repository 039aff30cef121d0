package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// What the management API shows of databases can be sent back.
func TestDatabases(t *testing.T) {
	const written = `{"databases":[{"name":"shop","url":"postgres://app@db.example.com:6432/shop?sslmode=require","write_url":"secret:shop_writer","schemas":["public","stock.items"],"statement_timeout":"30s"},{"name":"b","url":"secret:b"}]}`
	rt, err := Part{Name: "body", Data: []byte(written)}.Runtime(50)
	if err != nil {
		t.Fatal(err)
	}
	want := []org.Database{
		{Name: "shop", URL: "postgres://app@db.example.com:6432/shop?sslmode=require", WriteURL: "secret:shop_writer", Schemas: []string{"public", "stock.items"}, StatementTimeout: 30 * time.Second},
		{Name: "b", URL: "secret:b", StatementTimeout: 10 * time.Second},
	}
	if diff := cmp.Diff(want, rt.Databases); diff != "" {
		t.Error(diff)
	}
	shown, err := json.Marshal(RuntimeSettings(rt))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Part{Name: "body", Data: shown, Patched: true}.Runtime(50)
	if err != nil || !cmp.Equal(rt.Databases, again.Databases) {
		t.Errorf("%v: %s\n%s", err, cmp.Diff(rt.Databases, again.Databases), shown)
	}
}

func TestDatabasesThatAreRefused(t *testing.T) {
	for one, want := range map[string]string{
		`{"url":"secret:a"}`: "databases[0].name: is missing",
		`{"name":"a"}`:       "databases[0].url: is missing",
		`{"name":"a","url":"postgres://app:CANARY@db.example.com/shop"}`:                       "contains a password; store the whole URL as a secret",
		`{"name":"a","url":"secret:a","write_url":"postgres://u:CANARY@h/d"}`:                  "databases[0].write_url: contains a password",
		`{"name":"a","url":"mysql://app@db.example.com/shop"}`:                                 "must be a URL such as postgres://",
		`{"name":"a","url":"postgres://db.example.com/shop"}`:                                  "must name the role",
		`{"name":"a","url":"postgres://app@/shop"}`:                                            "must name one host",
		`{"name":"a","url":"postgres://app@a,b/shop"}`:                                         "must name one host",
		`{"name":"a","url":"postgres://app@%2Ftmp/shop"}`:                                      "must",
		`{"name":"a","url":"postgres://app@h"}`:                                                "must name one database",
		`{"name":"a","url":"postgres://app@h/d?sslmode=prefer"}`:                               "sslmode must be verify-full",
		`{"name":"a","url":"postgres://app@h/d?sslrootcert=/etc/passwd"}`:                      "is the only parameter",
		`{"name":"a","url":"postgres://app@h/d?host=/tmp"}`:                                    "is the only parameter",
		`{"name":"a","url":"postgres://app@h/d?sslmode=require&servicefile=/tmp/x"}`:           "is the only parameter",
		`{"name":"a","url":"sqlite:"}`:                                                         "must name a file",
		`{"name":"a","url":"sqlite:/a?mode=rwc"}`:                                              "must name a file",
		`{"name":"a","url":"secret:a","schemas":["a b"]}`:                                      "must be a schema or a table",
		`{"name":"a","url":"secret:a","schemas":["a.b.c"]}`:                                    "must be a schema or a table",
		`{"name":"a","url":"secret:a","statement_timeout":"61s"}`:                              "statement_timeout",
		`{"name":"a","url":"secret:a"},{"name":"a","url":"secret:b"}`:                          "databases[1].name: is that of another database",
		`{"name":"a","url":"secret:a","password":"x"}`:                                         "password",
		strings.Repeat(`{"name":"a","url":"secret:a"},`, 20) + `{"name":"b","url":"secret:a"}`: "at most 20",
	} {
		_, err := Part{Name: "body", Data: []byte(`{"databases":[` + one + `]}`)}.Runtime(50)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%.120s: %v; want %q", one, err, want)
		}
	}
}

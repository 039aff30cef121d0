package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Buckets are checked when they are configured. // E20
func TestBucketsAreChecked(t *testing.T) {
	s3 := `kind: s3, bucket: my-files, access_key: "secret:id", secret_key: "secret:key"`
	for buckets, want := range map[string]string{
		`{kind: disk}`:                                    "name",
		`{name: ../x}`:                                    "is not a name",
		`{name: a, kind: ftp}`:                            "disk, s3 or database",
		`{name: a}, {name: a}`:                            "already used",
		strings.Repeat(`{name: a},`, 21):                  "at most 20",
		`{name: a, endpoint: "https://e.com"}`:            "endpoint: is only for the kind s3",
		`{name: a, secret_key: "secret:k"}`:               "secret_key: is only for the kind s3",
		`{name: a, kind: s3}`:                             "bucket: is missing",
		`{name: a, kind: s3, bucket: b1}`:                 "access_key: is missing",
		`{name: a, quota_mib: 0}`:                         "quota_mib",
		`{name: a, max_file_mib: 5121}`:                   "max_file_mib",
		`{name: a, ` + s3 + `, endpoint: "ftp://e.com"}`:  "http",
		`{name: a, ` + s3 + `, prefix: /x/}`:              "prefix",
		`{name: a, ` + s3 + `, prefix: x}`:                "must end with /",
		`{name: a, ` + s3 + `, prefix: a/../}`:            "prefix",
		`{name: a, kind: s3, bucket: "a/b"}`:              "is not the name of a bucket",
		`{name: a, kind: s3, access_key: "AKIAEXAMPLE1"}`: "must be a reference",
		`{name: a, kind: s3, secret_key: "${SECRET}"}`:    "is not replaced",
		`{name: a, kind: s3, secret_key: "x secret:k"}`:   "must be a reference",
		`{name: a, kind: database}`: "kind: database needs PostgreSQL; set database to postgres://…, or the kind to " +
			"disk or s3",
	} {
		_, err := Part{Name: "body", Data: []byte("buckets: [" + buckets + "]")}.Runtime(50)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v", buckets, err)
		}
		if err != nil && strings.Contains(err.Error(), "AKIAEXAMPLE1") {
			t.Error("the error contains what may be a credential")
		}
	}
}

// What the management API shows of buckets can be sent back.
func TestBucketsAreShownAsTheyAreRead(t *testing.T) {
	const text = `buckets: [{name: docs}, {name: big, kind: disk, quota_mib: 100, max_file_mib: 20},
  {name: cloud, kind: s3, endpoint: "http://127.0.0.1:9000", region: eu-west-1, bucket: my-files, prefix: turnpike/, access_key: "secret:id", secret_key: "secret:key"}]`
	first, err := Part{Name: "body", Data: []byte(text)}.Runtime(50)
	if err != nil {
		t.Fatal(err)
	}
	want := []org.Bucket{
		{Name: "docs", Kind: "disk", MaxFile: 100 << 20}, {Name: "big", Kind: "disk", Quota: 100 << 20, MaxFile: 20 << 20},
		{Name: "cloud", Kind: "s3", MaxFile: 100 << 20, Endpoint: "http://127.0.0.1:9000", Region: "eu-west-1", Bucket: "my-files", Prefix: "turnpike/", AccessKey: "secret:id", SecretKey: "secret:key"},
	}
	if diff := cmp.Diff(want, first.Buckets); diff != "" {
		t.Error(diff)
	}
	shown, err := json.Marshal(RuntimeSettings(first))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Part{Name: "body", Data: shown, Patched: true}.Runtime(50)
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	if diff := cmp.Diff(first.Buckets, again.Buckets); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(shown), `{"name":"docs","kind":"disk","max_file_mib":100}`) {
		t.Errorf("%s", shown)
	}
}

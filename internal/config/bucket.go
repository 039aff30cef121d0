package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// buckets is a list of buckets, which the management API reads and writes as a whole.
type buckets struct{ objects[org.Bucket] }

func bucketList(into *[]org.Bucket) buckets {
	return buckets{objects[org.Bucket]{into, bucketKeys}}
}

// bucketKeys are the settings of a bucket.
func bucketKeys(b *org.Bucket) []key {
	return []key{
		{name: "name", value: text(&b.Name, "", "name", checkID), required: true, doc: "Name of the bucket, unique in the org. Models and the API use it."},
		{name: "kind", value: word(&b.Kind, org.BucketDisk, org.BucketDisk, org.BucketS3, org.BucketDatabase), doc: "disk: files in data. s3: " +
			"a service with the API of Amazon S3. database: in the PostgreSQL database of the gateway, if it has one; the default where replica " +
			"is set, which refuses disk."},
		{name: "quota_mib", value: unsetZero(mebibytes(&b.Quota, 0, 1, 1<<30).or("no limit")), doc: "Maximum size of all files of the bucket together, in MiB. What does not fit is refused before it is written."},
		{name: "max_file_mib", value: mebibytes(&b.MaxFile, org.DefaultMaxFile>>20, 1, org.MaxMaxFile>>20), doc: "Maximum size of a file, in MiB."},
		{name: "endpoint", value: address(&b.Endpoint, checkURL).or("that of AWS in the region"), doc: "Only for s3: URL of the service. The outbound policy applies to it."},
		{name: "region", value: text(&b.Region, "", "region", checkWord).or(org.DefaultRegion), doc: "Only for s3: region of the service."},
		{name: "bucket", value: text(&b.Bucket, "", "bucket name", checkBucketName), doc: "Only for s3, which needs it: name of the bucket in the service."},
		{name: "prefix", value: text(&b.Prefix, "", "prefix such as turnpike/", org.CheckBucketPrefix), doc: "Only for s3: begins the keys of all files. The bucket of the org contains only these."},
		{name: "access_key", value: referenceKey(&b.AccessKey), doc: "Only for s3, which needs it: the access key id."},
		{name: "secret_key", value: referenceKey(&b.SecretKey), doc: "Only for s3, which needs it: the secret access key."},
	}
}

// unsetZero leaves a number out of what is shown if it is 0.
func unsetZero[T int | int64](s scalar[T]) scalar[T] {
	shown, wire := s.show, s.wire
	s.show = func(v T) string {
		if v == 0 {
			return "unset"
		}
		return shown(v)
	}
	s.wire = func(v T) any {
		if v == 0 {
			return unset{}
		}
		return wire(v)
	}
	return s
}

func checkBucketName(s string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$`).MatchString(s) || strings.Contains(s, "..") {
		return errors.New("is not the name of a bucket; want 2 to 255 letters, digits, dots, hyphens or underscores")
	}
	return nil
}

// reference is a key with a reference to a credential, and nothing else.
type reference struct{ scalar[string] }

func referenceKey(into *string) reference {
	s := text(into, "", "reference such as secret:NAME", checkReference)
	parse := s.parse
	s.parse = func(r raw) (string, error) {
		if _, err := parseSecretText(r); err != nil { // ${NAME}, and what is no text
			return "", err
		}
		return parse(r)
	}
	return reference{s}
}

func checkReference(s string) error {
	if _, err := secret.ParseRef(s); err != nil {
		return errors.New("must be a reference to a credential: secret:NAME of the vault or, in the configuration file, env:NAME or file:PATH")
	}
	return nil
}

func (r reference) decode(d *decoder, path string, n ast.Node) {
	before := len(d.mistakes)
	r.scalar.decode(d, path, n)
	if len(d.mistakes) > before {
		return
	}
	if t, err := secret.Parse(*r.into); err == nil {
		*r.into = written(t.Under(d.dir))
	}
}

// checkBuckets compares the keys of buckets with each other.
func (d *decoder) checkBuckets(path string, all []org.Bucket) {
	if len(all) > org.MaxBuckets {
		d.failPath(path, "has %d buckets; want at most %d", len(all), org.MaxBuckets)
	}
	unique(d, all, path+"[%d].name", func(b org.Bucket) string { return b.Name })
	for i := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.placeBucket(at, &all[i])
		b := all[i]
		for _, one := range []struct {
			key, value string
			required   bool
		}{
			{"endpoint", b.Endpoint, false}, {"region", b.Region, false}, {"bucket", b.Bucket, true}, {"prefix", b.Prefix, false},
			{"access_key", b.AccessKey, true}, {"secret_key", b.SecretKey, true},
		} {
			switch {
			case !b.IsS3() && one.value != "":
				d.failPath(join(at, one.key), "is only for the kind s3; remove it")
			case b.IsS3() && one.required && one.value == "":
				d.failPath(join(at, one.key), "is missing; the kind s3 needs it")
			}
		}
	}
}

func (b buckets) json() any {
	all := make([]Settings, len(*b.into))
	for i := range *b.into {
		all[i] = settingsOf(b.keys(&(*b.into)[i]))
	}
	return all
}

func (b buckets) shown() string {
	var all []string
	for _, one := range *b.into {
		all = append(all, one.Name+" ("+one.KindName()+")")
	}
	return "[" + strings.Join(all, ", ") + "]"
}

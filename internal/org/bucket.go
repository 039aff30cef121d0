package org

import (
	"cmp"
	"errors"
	"strings"
	"unicode/utf8"
)

// Bucket is where an org keeps files: see [Runtime].Buckets. It contains no credential.
type Bucket struct {
	Name string `json:"name"`           // unique in the org; the model names it
	Kind string `json:"kind,omitempty"` // BucketDisk (also when empty), BucketS3 or BucketDatabase

	Quota   int64 `json:"quota_bytes,omitempty"`    // of all files together; 0 = no limit but those of the operator and of the service
	MaxFile int64 `json:"max_file_bytes,omitempty"` // of one file; 0 = DefaultMaxFile

	// S3.
	Endpoint  string `json:"endpoint,omitempty"` // "" = that of AWS in the region
	Region    string `json:"region,omitempty"`   // "" = DefaultRegion
	Bucket    string `json:"bucket,omitempty"`   // its name in the service
	Prefix    string `json:"prefix,omitempty"`   // begins the keys of all files, such as turnpike/
	AccessKey string `json:"access_key,omitempty"`
	SecretKey string `json:"secret_key,omitempty"` // as AccessKey, a reference
}

// The kinds of buckets.
const (
	BucketDisk = "disk" // files in the gateway's data directory
	BucketS3   = "s3"   // a service that speaks the API of Amazon S3

	BucketDatabase = "database" // the gateway's PostgreSQL database
)

const (
	// MaxBuckets is how many buckets an org may have.
	MaxBuckets = 20
	// DefaultMaxFile is the largest file of a bucket that does not say otherwise, in bytes.
	DefaultMaxFile = 100 << 20
	// MaxMaxFile is the largest value of [Bucket].MaxFile.
	MaxMaxFile = 5 << 30
	// DefaultRegion is the region of a bucket that names none.
	DefaultRegion = "us-east-1"
	// MaxBucketPrefix is how long [Bucket].Prefix may be, in bytes.
	MaxBucketPrefix = 200
)

// IsS3 reports whether the files are in an S3 service.
func (b Bucket) IsS3() bool { return b.Kind == BucketS3 }

// KindName returns the kind, which has a default.
func (b Bucket) KindName() string { return cmp.Or(b.Kind, BucketDisk) }

// LargestFile returns how large a file of the bucket may be, in bytes.
func (b Bucket) LargestFile() int64 {
	if b.MaxFile <= 0 {
		return DefaultMaxFile
	}
	return min(b.MaxFile, MaxMaxFile)
}

// CheckBucketPrefix checks [Bucket].Prefix.
func CheckBucketPrefix(s string) error {
	switch {
	case s == "":
		return nil
	case len(s) > MaxBucketPrefix:
		return errors.New("is longer than 200 bytes")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return errors.New("contains a character that a prefix cannot have")
	case strings.HasPrefix(s, "/") || !strings.HasSuffix(s, "/"):
		return errors.New("must end with / and not begin with it, such as turnpike/")
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(s, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return errors.New("must be names with one / after each, such as turnpike/files/")
		}
	}
	return nil
}

// Bucket returns the bucket with the name, or false.
func (r Runtime) Bucket(name string) (Bucket, bool) {
	for _, b := range r.Buckets {
		if b.Name == name {
			return b, true
		}
	}
	return Bucket{}, false
}

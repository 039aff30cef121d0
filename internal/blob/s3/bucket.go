package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Bucket is a bucket of an org. It implements [blob.Bucket].
type Bucket struct {
	client   *client
	settings org.Bucket
	counted  *counted // nil = it has no quota
	now      func() time.Time
}

var _ blob.Bucket = (*Bucket)(nil)

// How long requests may take: those that carry a file, and others.
const (
	fileTimeout  = 10 * time.Minute
	shortTimeout = time.Minute
)

func (b *Bucket) key(path string) string { return b.settings.Prefix + path }

// List implements [blob.Bucket].
func (b *Bucket) List(ctx context.Context, q blob.Query) (blob.Page, error) {
	if err := q.Check(); err != nil {
		return blob.Page{}, err
	}
	skip := q.Offset
	var page blob.Page
	err := b.each(ctx, q.Prefix, q.After, func(i blob.Info) bool {
		if skip > 0 {
			skip--
			return true
		}
		if page.More = len(page.Files) == q.Limit; !page.More {
			page.Files = append(page.Files, i)
		}
		return !page.More
	})
	if err != nil {
		return blob.Page{}, err
	}
	return page, nil
}

// maxPages is how many pages of 1,000 keys are read to find files.
const maxPages = 200

// each calls yield for the files with a prefix, after a path, until it returns false.
func (b *Bucket) each(ctx context.Context, prefix, after string, yield func(blob.Info) bool) error {
	short, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	start, next := "", ""
	if after != "" {
		start = b.key(after)
	}
	for range maxPages {
		page, err := b.client.list(short, b.key(prefix), start, next)
		if err != nil {
			return b.failed(ctx, err)
		}
		for _, o := range page.Objects {
			path, inside := strings.CutPrefix(o.Key, b.settings.Prefix)
			if !inside || blob.CheckPath(path) != nil || !strings.HasPrefix(path, prefix) || path <= after {
				continue
			}
			if !yield(blob.Info{Path: path, Size: o.Size, Modified: o.Modified}) {
				return nil
			}
		}
		if next = page.Next; !page.More || next == "" {
			return nil
		}
	}
	return &blob.RefusedError{Why: "the bucket has too many objects to look through; use a prefix, or after"}
}

// Stat implements [blob.Bucket].
func (b *Bucket) Stat(ctx context.Context, path string) (blob.Info, error) {
	if err := blob.CheckPath(path); err != nil {
		return blob.Info{}, err
	}
	short, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	answer, err := b.client.do(short, call{method: http.MethodHead, key: b.key(path)})
	if err != nil {
		return blob.Info{}, b.failed(ctx, err)
	}
	finish(answer)
	info := infoOf(path, answer)
	info.Size = max(info.Size, 0)
	return info, nil
}

// infoOf returns what an answer says of an object. Its size is -1 if the service does not say it; its digest is "" if it
// has none.
func infoOf(path string, answer *http.Response) blob.Info {
	info := blob.Info{Path: path, Size: answer.ContentLength}
	info.Modified, _ = http.ParseTime(answer.Header.Get("Last-Modified"))
	digest := answer.Header.Get(headerDigest)
	if sum, err := hex.DecodeString(digest); err == nil && len(sum) == sha256.Size {
		info.SHA256 = digest
	}
	return info
}

// Open implements [blob.Bucket].
func (b *Bucket) Open(ctx context.Context, path string) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckPath(path); err != nil {
		return nil, blob.Info{}, err
	}
	long, cancel := context.WithTimeout(ctx, fileTimeout)
	answer, err := b.client.do(long, call{method: http.MethodGet, key: b.key(path)})
	if err != nil {
		cancel()
		return nil, blob.Info{}, b.failed(ctx, err)
	}
	info := infoOf(path, answer)
	if info.Size < 0 {
		cancel()
		return nil, blob.Info{}, errors.Join(&blob.RefusedError{Why: "the service does not say how large the file is"}, answer.Body.Close())
	}
	return &content{answer.Body, b, ctx, cancel, sha256.New(), info.SHA256}, info, nil
}

// content reads the content of a file and compares its digest at the end, if it has one.
type content struct {
	body   io.ReadCloser
	bucket *Bucket
	ctx    context.Context //nolint:containedctx // of the Open that it belongs to: errors say whether it has ended
	cancel context.CancelFunc
	sum    hash.Hash
	digest string
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.sum.Write(p[:n])
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, c.bucket.failed(c.ctx, err)
	case c.digest != "" && hex.EncodeToString(c.sum.Sum(nil)) != c.digest:
		return n, blob.ErrDamaged
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (c *content) Close() error {
	c.cancel()
	return c.body.Close()
}

// Put implements [blob.Bucket].
func (b *Bucket) Put(ctx context.Context, path string, body io.ReadSeeker) (blob.Info, error) {
	if err := errors.Join(blob.CheckPath(path), ctx.Err()); err != nil {
		return blob.Info{}, err
	}
	size, err := blob.Size(body)
	if err != nil {
		return blob.Info{}, err
	}
	if err := blob.CheckSize(size, b.settings.LargestFile()); err != nil {
		return blob.Info{}, err
	}
	if b.counted == nil {
		return b.put(ctx, path, body, size)
	}
	var info blob.Info
	err = b.counted.change(ctx, b, path, func(old blob.Usage) error {
		more := blob.Usage{Bytes: size, Files: 1}
		if !b.counted.meter.Reserve(more, blob.Limits{Bytes: b.settings.Quota}) {
			return blob.QuotaError(b.settings.Quota)
		}
		if info, err = b.put(ctx, path, body, size); err != nil {
			b.counted.meter.Release(more)
			b.counted.forget() // nobody knows whether it was written
			return err
		}
		b.counted.meter.Release(old)
		return nil
	})
	return info, err
}

func (b *Bucket) put(ctx context.Context, path string, body io.ReadSeeker, size int64) (blob.Info, error) {
	sum := sha256.New()
	if n, err := io.Copy(sum, body); err != nil || n != size {
		return blob.Info{}, errors.Join(err, errors.New("the body could not be read"))
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	long, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	answer, err := b.client.do(long, call{method: http.MethodPut, key: b.key(path), body: body, size: size, digest: digest})
	if err != nil {
		return blob.Info{}, b.failed(ctx, err)
	}
	finish(answer)
	return blob.Info{Path: path, Size: size, Modified: b.now(), SHA256: digest}, nil
}

// Delete implements [blob.Bucket].
func (b *Bucket) Delete(ctx context.Context, path string) error {
	if b.counted == nil {
		return b.remove(ctx, path)
	}
	if err := blob.CheckPath(path); err != nil {
		return err
	}
	return b.counted.change(ctx, b, path, func(old blob.Usage) error {
		if err := b.remove(ctx, path); err != nil {
			b.counted.forget()
			return err
		}
		b.counted.meter.Release(old)
		return nil
	})
}

// remove deletes a file. The service does not say whether there was one.
func (b *Bucket) remove(ctx context.Context, path string) error {
	if _, err := b.Stat(ctx, path); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	answer, err := b.client.do(short, call{method: http.MethodDelete, key: b.key(path)})
	if err != nil {
		return b.failed(ctx, err)
	}
	finish(answer)
	return nil
}

// Usage implements [blob.Bucket].
func (b *Bucket) Usage(ctx context.Context) (used blob.Usage, err error) {
	err = b.each(ctx, "", "", func(i blob.Info) bool {
		used.Bytes += i.Size
		used.Files++
		return true
	})
	return used, err
}

const notS3 = "the endpoint answered, but not as an S3 service does; is it right?"

// failed returns the error of a request in the words of package blob.
func (b *Bucket) failed(ctx context.Context, err error) error {
	var fatal tool.Blocked
	var service *serviceError
	refused := func(why, setting string) error {
		return &blob.RefusedError{Why: why, Setting: setting, Err: err}
	}
	switch {
	case errors.As(err, &fatal): // of the outbound policy: it ends the run
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errNotS3):
		return refused(notS3, "endpoint of the bucket")
	case !errors.As(err, &service):
		return refused("the service of the bucket could not be reached, or broke off; a write may have been carried out", "endpoint of the bucket")
	}
	redirect := service.status/100 == 3
	switch {
	case (redirect || service.status == http.StatusBadRequest) && service.region != "" && service.region != b.client.region:
		return refused("the bucket is in the region "+service.region+", and the requests are signed for "+b.client.region, "region of the bucket")
	case redirect:
		return refused("the service redirects requests for the bucket to another endpoint, and redirects are not followed; "+
			"are endpoint and region right?", "endpoint of the bucket")
	}
	switch service.code {
	case "NoSuchKey", "NotFound":
		return blob.ErrNotFound
	case "NoSuchBucket":
		return refused("the service has no bucket with the name "+b.settings.Bucket, "bucket of the bucket")
	case "AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed":
		return refused("the service refused the credentials of the bucket", "access_key and secret_key of the bucket")
	case "EntityTooLarge", "QuotaExceeded":
		return &blob.LimitError{What: "the service does not take a file of this size", Setting: "max_file_mib of the bucket"}
	case "SlowDown", "ServiceUnavailable":
		return refused("the service of the bucket is overloaded; try again later", "")
	case "RequestTimeTooSkewed":
		return refused("the clocks of the gateway and of the service of the bucket differ too much", "")
	case "":
		if service.status < http.StatusInternalServerError {
			return refused(notS3, "endpoint of the bucket")
		}
	}
	return refused("the service of the bucket failed", "")
}

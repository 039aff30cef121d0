package storagetool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/tool"
)

// open opens the bucket with the name, or the only one of the org if there is no name.
func open(ctx context.Context, o Options, name string) (string, blob.Bucket, error) {
	all := o.Settings()
	switch {
	case len(all) == 0:
		return "", nil, &MissingError{"Storage is not configured: the org has no bucket", "buckets"}
	case name == "" && len(all) > 1:
		var names []string
		for _, b := range all {
			names = append(names, b.Name)
		}
		return "", nil, &blob.ArgumentError{Argument: "bucket", Why: "is missing; the buckets are " + strings.Join(names, ", ")}
	case name == "":
		name = all[0].Name
	}
	b, err := o.Buckets.Open(ctx, o.Org, name)
	if errors.Is(err, blob.ErrNoBucket) {
		err = &blob.ArgumentError{Argument: "bucket", Why: fmt.Sprintf("%q does not exist", name)}
	}
	return name, b, err
}

// result returns what the model is told of an error, or the error if the run must not go on.
func (o Options) result(ctx context.Context, err error) (tool.Result, error) {
	var (
		fatal    tool.Blocked
		missing  *MissingError
		argument *blob.ArgumentError
		limit    *blob.LimitError
		refused  *blob.RefusedError
	)
	switch {
	case errors.As(err, &fatal):
		return tool.Result{}, err
	case ctx.Err() != nil:
		return tool.Result{}, context.Cause(ctx)
	case errors.As(err, &missing):
		return failed(missing.Why, missing.Setting), nil
	case errors.As(err, &argument):
		return failed(argument.Error(), ""), nil
	case errors.As(err, &limit):
		return failed(limit.What, limit.Setting), nil
	case errors.As(err, &refused):
		o.Log.Warn("a bucket has not answered a tool", "org", o.Org, "error", refused.Why, "cause", refused.Err)
		return failed(refused.Why, refused.Setting), nil
	case errors.Is(err, blob.ErrNotFound):
		return failed("there is no such file; list the files to see their paths", ""), nil
	case errors.Is(err, blob.ErrDamaged):
		o.Log.Error("a file of a bucket is damaged", "org", o.Org, "error", err)
		return failed(blob.ErrDamaged.Error(), ""), nil
	case errors.Is(err, blob.ErrDeleted):
		return failed(blob.ErrDeleted.Error(), ""), nil
	}
	o.Log.Error("a tool cannot use a bucket", "org", o.Org, "error", err)
	return failed("the bucket cannot be used at the moment; the log of the gateway says why", ""), nil
}

// failed is what the model gets of an error.
func failed(why, setting string) tool.Result {
	return builtin.Refusal{Error: why, Setting: setting}.Result()
}

func succeeded(answer any) (tool.Result, error) {
	text, err := encode(answer)
	if err != nil {
		return tool.Result{}, err
	}
	r := tool.Text(text)
	r.Structured = json.RawMessage(text)
	return r, nil
}

// encode returns the JSON of a value with <, > and & as they are.
func encode(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return strings.TrimSuffix(b.String(), "\n"), err
}

package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// goClient is the module openai-go.
type goClient struct{}

func (goClient) name() string { return "Go" }

func (goClient) start(t *testing.T, ask ask) *exchange {
	t.Helper()
	e := newExchange()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	call := goCall{ask: ask, exchange: e, client: newHTTPClient(t)}
	go func() {
		defer close(ended)
		if err := call.do(ctx); err != nil {
			call.seen.Error = describeGoError(err)
		}
		offer(e.done, call.seen)
	}()
	e.abort = cancel
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return e
}

// goCall is one request of the Go client.
type goCall struct {
	ask      ask
	exchange *exchange
	client   *http.Client
	seen     outcome
}

func (c *goCall) do(ctx context.Context) error {
	client := openai.NewClient(c.options()...)
	if c.ask.Path != "" {
		var ignored json.RawMessage
		return client.Post(ctx, c.ask.Path[1:], nil, &ignored, option.WithRequestBody("application/json", []byte(c.ask.Raw)))
	}
	if c.ask.Models {
		return c.models(ctx, client.Models)
	}
	var params openai.ChatCompletionNewParams
	if err := json.Unmarshal(marshal(c.ask.Request), &params); err != nil {
		return err
	}
	if c.ask.Stream {
		return c.stream(client.Chat.Completions.NewStreaming(ctx, params))
	}
	completion, err := client.Chat.Completions.New(ctx, params)
	if err != nil {
		return err
	}
	c.take(completion)
	return nil
}

func (c *goCall) models(ctx context.Context, models openai.ModelService) error {
	seen := func(m openai.Model) seenModel { return seenModel{ID: m.ID, Created: m.Created, OwnedBy: m.OwnedBy} }
	pages := models.ListAutoPaging(ctx)
	for pages.Next() {
		c.seen.Models = append(c.seen.Models, seen(pages.Current()))
	}
	if err := pages.Err(); err != nil {
		return err
	}
	for _, listed := range c.seen.Models {
		m, err := models.Get(ctx, listed.ID)
		if err != nil {
			return err
		}
		c.seen.Retrieved = append(c.seen.Retrieved, seen(*m))
	}
	_, err := models.Get(ctx, unlistedModel)
	return err
}

func (c *goCall) options() []option.RequestOption {
	options := []option.RequestOption{
		option.WithBaseURL(c.ask.BaseURL), option.WithAPIKey(c.ask.Key), option.WithHTTPClient(c.client),
	}
	for name, value := range c.ask.Header {
		options = append(options, option.WithHeader(name, value))
	}
	if c.ask.NoRetries {
		options = append(options, option.WithMaxRetries(0))
	}
	if c.ask.Hash {
		options = append(options, option.WithMiddleware(c.hash))
	}
	return options
}

// hash notes the SHA-256 of the request's body on its way out.
func (c *goCall) hash(request *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, body); err != nil {
			return nil, err
		}
		c.seen.BodySHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	return next(request)
}

func (c *goCall) take(completion *openai.ChatCompletion) {
	for _, choice := range completion.Choices {
		c.seen.FinishReasons = append(c.seen.FinishReasons, choice.FinishReason)
		c.seen.Text += choice.Message.Content
		for _, call := range choice.Message.ToolCalls {
			c.seen.ToolCalls = append(c.seen.ToolCalls, seenCall{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
	}
	c.takeUsage(completion.Usage)
}

func (c *goCall) stream(stream *ssestream.Stream[openai.ChatCompletionChunk]) error {
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		chunk := stream.Current()
		if chunk.JSON.Usage.Valid() {
			c.takeUsage(chunk.Usage)
		}
		for _, choice := range chunk.Choices {
			if choice.FinishReason != "" {
				c.seen.FinishReasons = append(c.seen.FinishReasons, choice.FinishReason)
			}
			c.takeDelta(choice.Delta)
		}
	}
	return stream.Err()
}

func (c *goCall) takeDelta(delta openai.ChatCompletionChunkChoiceDelta) {
	if c.seen.Text += delta.Content; c.seen.Text != "" {
		offer(c.exchange.firstText, c.seen.Text)
	}
	for _, part := range delta.ToolCalls {
		for int(part.Index) >= len(c.seen.ToolCalls) {
			c.seen.ToolCalls = append(c.seen.ToolCalls, seenCall{})
		}
		call := &c.seen.ToolCalls[part.Index]
		if part.ID != "" {
			call.ID = part.ID
		}
		call.Name += part.Function.Name
		call.Arguments += part.Function.Arguments
	}
}

func (c *goCall) takeUsage(u openai.CompletionUsage) {
	c.seen.Usage = &usage{Prompt: int(u.PromptTokens), Completion: int(u.CompletionTokens), Total: int(u.TotalTokens)}
}

// describeGoError names the SDK's two error types as a Go program sees them.
func describeGoError(err error) *clientError {
	var answered *openai.Error
	if errors.As(err, &answered) {
		return &clientError{
			Class: "openai.Error", IsAPIError: true, Status: answered.StatusCode,
			Code: answered.Code, Message: answered.Message, RetryAfter: answered.Response.Header.Get("Retry-After"),
		}
	}
	var broken *ssestream.StreamError
	if errors.As(err, &broken) {
		return &clientError{Class: "ssestream.StreamError", IsAPIError: true, Message: broken.Message}
	}
	if errors.Is(err, context.Canceled) {
		return &clientError{Class: "aborted"}
	}
	return &clientError{Class: "other", Message: err.Error()}
}

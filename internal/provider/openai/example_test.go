package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// canned is a provider that always says the same.
type canned string

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(c)))}, nil
}

func ExampleProvider_Stream() {
	p := openai.New(wire.Endpoint{
		BaseURL: "https://api.example.com/v1",
		Transport: canned(`data: {"choices":[{"delta":{"content":"The answer "}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"content":"is 5."},"finish_reason":"stop"}]}` + "\n\n" + "data: [DONE]\n\n"),
	}, openai.Options{})
	req := &model.Request{Model: "some-model", Items: []item.Item{item.NewText(item.User, "What is 2+3?")}}
	turn, err := p.Stream(context.Background(), req, func(d model.Delta) error {
		fmt.Printf("%q\n", d.Text)
		return nil
	})
	fmt.Println(turn.Text(), turn.Stop, err)
	// Output:
	// "The answer "
	// "is 5."
	// The answer is 5. stop <nil>
}

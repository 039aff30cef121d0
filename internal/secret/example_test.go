package secret_test

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func ExampleResolver() {
	env := func(name string) (string, bool) { return "t0p", name == "TOKEN" }
	text, _ := secret.Parse("Bearer env:TOKEN")
	value, err := secret.NewResolver(env).Resolve(context.Background(), text)
	fmt.Println(text, value, value.Reveal(), err)
	// Output: [redacted] env:TOKEN [redacted] Bearer t0p <nil>
}

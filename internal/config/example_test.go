package config_test

import (
	"fmt"
	"os"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

func ExampleParse() {
	const file = `
providers:
  - {name: openai, api_key: env:OPENAI_API_KEY, model: [gpt-5.4]}
orgs:
  - id: default
    runtime: {max_rounds: 51}
`
	_, err := config.Parse("turnpike.yaml", []byte(file), os.LookupEnv)
	fmt.Println(err)
	// Output:
	// turnpike.yaml:3:49: providers[0].model: unknown key; did you mean models?
	// turnpike.yaml:6:27: orgs[0].runtime.max_rounds: 51 is above max_rounds_cap (50)
}

package upstreamtest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func ExampleUpstream() {
	script, err := turnpiketest.ParseScript("fail 429 retry-after 2 slow down\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	upstream := upstreamtest.New(script, upstreamtest.Options{})
	defer upstream.Close()

	resp, err := http.Post(upstream.URL+"/chat/completions", "application/json", strings.NewReader(`{"model":"any"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, resp.Header.Get("Retry-After"), string(body))
	fmt.Println(string(upstream.Requests()[0].Body))
	// Output:
	// 429 2 {"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":"429"}}
	// {"model":"any"}
}

// A strict Upstream refuses what the real provider would refuse.
func ExampleUpstream_strict() {
	script, err := turnpiketest.ParseScript("text Hello.\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	upstream := upstreamtest.New(script, upstreamtest.Options{Strict: true})
	defer upstream.Close()

	for _, body := range []string{
		`{"model":"any","input":"Hi","max_output_tokens":5}`,
		`{"model":"any","input":"Hi","max_output_tokens":50}`,
	} {
		client := http.Client{Transport: upstream.Transport()}
		resp, err := client.Post(upstream.URL+"/responses", "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	fmt.Println(upstream.Requests()[0].Refused)
	// Output:
	// 400
	// 200
	// Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 5 instead.
}

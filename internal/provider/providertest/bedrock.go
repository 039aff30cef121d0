package providertest

import "github.com/turnpike-gateway/turnpike/item"

// bedrockSupport is the column [Bedrock], for Claude models of Bedrock, by the names of
// the features. A feature that is not in it is dropped.
func bedrockSupport() map[string]Support {
	const (
		image    = `{"image":{"format":"png","source":{"bytes":"` + png + `"}}}`
		document = `{"document":{"name":"a","format":"pdf","source":{"bytes":"JVBERi0="}}}`
		noAudio  = `{"text":"[audio; type: audio/wav; 4 bytes, not shown]"}`
		saysSo   = "text that says so"
		result   = `{"toolResult":{"toolUseId":"p2","content":[`
	)
	return map[string]Support{
		"System message":                       {Sent: `{"system":[{"text":"rule"}]}`},
		"Developer message":                    {Sent: `{"system":[{"text":"rule"}]}`, Note: "system text"},
		"Image, by https URL":                  {Refused: "messages[0].content[1].image_url: the provider does not fetch this URL", Note: "bytes that the gateway fetches"},
		"Image, in the request":                {Sent: image},
		"PDF file, in the request":             {Sent: document},
		"Audio, in the request":                {Sent: noAudio, Note: saysSo},
		"Tools":                                {Sent: `{"toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"a tool","inputSchema":{"json":{"type":"object","properties":{"n":{"type":"integer"}}}}}},{"toolSpec":{"name":"g"}}]}}`},
		"Tool choice: required":                {Sent: `{"toolChoice":{"any":{}}}`},
		"Tool choice: one tool":                {Sent: `{"toolChoice":{"tool":{"name":"g"}}}`},
		"Tool choice: none":                    {Without: `"toolConfig"`, Omitted: true, Note: "no tools; Claude's own `none` if there were calls before"},
		"Tool choice: some of the tools":       {Sent: `{"toolChoice":{"any":{}}}`, Without: `"name":"f"`, Note: "only these are offered"},
		"One call at a time":                   {Sent: `{"additionalModelRequestFields":{"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}}`, Note: "yes, from Claude 4.5 on"},
		"Results of parallel calls":            {Sent: `{"role":"user","content":[{"toolResult":{"toolUseId":"p1"}},{"toolResult":{"toolUseId":"p2"}}]}`},
		"Mark of a result that is an error":    {Sent: `{"toolResult":{"toolUseId":"p2","status":"error"}}`},
		"Image in a tool result":               {Sent: result + image + `]}}`},
		"PDF file in a tool result":            {Sent: result + document + `]}}`},
		"Audio in a tool result":               {Sent: result + noAudio + `]}}`, Without: "UklGRg==", Note: saysSo},
		"Structured output by a JSON schema":   {Sent: `{"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"name":"n","schema":null}}}}}`},
		"Reasoning effort":                     {Sent: `{"additionalModelRequestFields":{"thinking":{"type":null}}}`, Note: "a number of tokens; effort for models that take it"},
		"Output limit":                         {Sent: `{"inferenceConfig":{"maxTokens":321}}`},
		"`temperature`":                        {Sent: `{"inferenceConfig":{"temperature":0.25}}`},
		"`top_p`":                              {Sent: `{"inferenceConfig":{"topP":0.5}}`},
		"`top_k`":                              {Sent: `{"additionalModelRequestFields":{"top_k":7}}`},
		"`stop`":                               {Sent: `{"inferenceConfig":{"stopSequences":["END"]}}`},
		"`metadata`":                           {Sent: `{"requestMetadata":{"k":"v"}}`},
		"Reasoning, back to the same provider": {Sent: `{"reasoningContent":{"reasoningText":{"text":"Hm.","signature":null}}}`},
		"Refusals":                             {Read: item.Text, Note: "text that ends with `content_filter`"},
	}
}

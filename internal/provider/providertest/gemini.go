package providertest

import "github.com/turnpike-gateway/turnpike/item"

// geminiSupport is the column [Gemini], by the names of the features. A feature that is
// not in it is dropped.
func geminiSupport() map[string]Support {
	config := func(member string) Support { return Support{Sent: `{"generationConfig":{` + member + `}}`} }
	choice := func(member string) Support {
		return Support{Sent: `{"toolConfig":{"functionCallingConfig":{` + member + `}}}`}
	}
	const audio = "[audio; type: audio/wav; 4 bytes, not shown]"
	return map[string]Support{
		"System message":           {Sent: `{"systemInstruction":{"parts":[{"text":"rule"}]}}`},
		"Developer message":        {Sent: `{"systemInstruction":{"parts":[{"text":"rule"}]}}`, Note: "system text"},
		"Image, by https URL":      {Sent: `{"fileData":{"mimeType":"image/png","fileUri":"https://example.com/i.png"}}`},
		"Image, in the request":    {Sent: `{"inlineData":{"mimeType":"image/png","data":"` + png + `"}}`},
		"PDF file, in the request": {Sent: `{"inlineData":{"mimeType":"application/pdf","data":"JVBERi0="}}`},
		"Audio, in the request":    {Sent: `{"inlineData":{"mimeType":"audio/wav","data":"UklGRg=="}}`},

		"Tools": {Sent: `{"tools":[{"functionDeclarations":[{"name":"f","description":"a tool","parametersJsonSchema":{"type":"object","properties":{"n":{"type":"integer"}}}},{"name":"g"}]}]}`},

		"Tool choice: required":          choice(`"mode":"ANY"`),
		"Tool choice: one tool":          choice(`"mode":"ANY","allowedFunctionNames":["g"]`),
		"Tool choice: none":              choice(`"mode":"NONE"`),
		"Tool choice: some of the tools": choice(`"mode":"ANY","allowedFunctionNames":["g"]`), // C25

		"Results of parallel calls":            {Sent: `{"contents":[{"role":"model","parts":[{"functionCall":{"id":"p1","name":"f"}},{"functionCall":{"id":"p2","name":"f"}}]},{"role":"user","parts":[{"functionResponse":{"id":"p1","name":"f","response":{"output":"one"}}},{"functionResponse":{"id":"p2","name":"f","response":{"output":"two"}}}]}]}`},
		"Mark of a result that is an error":    {Sent: `{"functionResponse":{"id":"p2","name":"f","response":{"error":"two"}}}`},
		"Image in a tool result":               {Sent: `{"inlineData":{"mimeType":"image/png","data":"` + png + `"}}`},
		"PDF file in a tool result":            {Sent: `{"inlineData":{"mimeType":"application/pdf","data":"JVBERi0="}}`},
		"Audio in a tool result":               {Sent: `{"functionResponse":{"id":"p2","response":{"output":"` + audio + `"}}}`, Without: "UklGRg==", Note: "text that says so"},
		"Reasoning, back to the same provider": {Sent: `{"role":"model","parts":[{"thought":true,"text":"Hm."},{"functionCall":{"name":"f"},"thoughtSignature":null}]}`},
		"Refusals":                             {Read: item.Text, Note: "text that ends with `content_filter`"},

		"Structured output by a JSON schema": config(`"responseMimeType":"application/json","responseJsonSchema":{"required":["a"]}`),
		"JSON output without a schema":       config(`"responseMimeType":"application/json"`),
		"Reasoning effort":                   {Sent: `{"thinkingConfig":{"includeThoughts":true}}`, Note: "a level of thinking; a number of tokens before Gemini 3"},
		"Output limit":                       config(`"maxOutputTokens":321`),
		"`temperature`":                      config(`"temperature":0.25`),
		"`top_p`":                            config(`"topP":0.5`),
		"`top_k`":                            config(`"topK":7`),
		"`stop`":                             config(`"stopSequences":["END"]`),
		"`seed`":                             config(`"seed":7`),
		"`presence_penalty`":                 config(`"presencePenalty":0.5`),
		"`frequency_penalty`":                config(`"frequencyPenalty":0.5`),
	}
}

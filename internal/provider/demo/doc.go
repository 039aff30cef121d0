// Package demo is a model that needs no network and no key, and an MCP server
// to go with it. The model is scripted and says so: it speaks the OpenAI chat
// dialect over HTTP, so that everything between a client and a provider is the
// real thing, and only the thinking is missing.
//
//	question            "How warm is it in Lisbon, in Fahrenheit?"
//	turn 1   a call     get_weather {"city":"Lisbon"}                    arguments made to fit the tool's schema
//	turn 2   a call     convert_temperature {"value":24,"from":"celsius",…}   with what the first result said
//	turn 3   text       quotes both results
//
// A question with a URL, or one that names JavaScript or Python, is answered with the gateway's tools web_scrape and
// code_execute, if they are offered (code.go):
//
//	question            "Read http://127.0.0.1:1/prices. Then add up the numbers with JavaScript."
//	turn 1   a call     web_scrape {"url":"http://127.0.0.1:1/prices"}
//	turn 2   a call     code_execute {"language":"javascript","code":"const numbers = [24.5, …"}
//
// A question that writes calls out gets exactly these, in its order:
//
//	question            use add_note with {"text":"milk"}
//
// Otherwise it calls only tools whose source says that they read, and tools that the question names.
//
// It works with whatever tools it is offered (pick.go, arguments.go), also with
// none. Equal requests get equal answers.
//
//	srv := httptest.NewServer(demo.New(demo.Options{}))   // POST srv.URL/v1/chat/completions
//	tools := httptest.NewServer(demo.MCPServer())
package demo

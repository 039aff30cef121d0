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
// It works with whatever tools it is offered (pick.go, arguments.go), also with
// none. Equal requests get equal answers.
//
//	srv := httptest.NewServer(demo.New(demo.Options{}))   // POST srv.URL/v1/chat/completions
//	tools := httptest.NewServer(demo.MCPServer())
package demo

// Package webtool has the built-in tools for the web: http_request, web_search and web_scrape.
//
//	arguments ─► check ─► guarded client ─► host, search API or page
//	                                          │ each redirect is checked again
//	model ◄── bounded text, untrusted ◄───────┘
//
//	s := webtool.New(webtool.Options{Client: out.Guarded(egress.GuardedOptions{}), Settings: func() org.Web { … }})
//	tools, err := s.List(ctx)
//
// The model chooses the URLs. An address that the outbound policy forbids is a [tool.Blocked] error, which ends
// the run: otherwise a model could probe the network one call at a time. Whatever else goes wrong is a
// result that the model reads: a JSON object with error, and with setting if something must be configured.
package webtool

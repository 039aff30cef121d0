// Package secret reads credentials by reference, as late as possible, and keeps
// them out of logs, errors and dumps.
//
// A configuration names a credential instead of holding it:
//
//	env:OPENAI_API_KEY          an environment variable
//	file:/run/secrets/token     the content of a file, at most 64 KiB
//	secret:gh_token             an entry of the org's vault
//
// A [Text] is what a configuration key or a header holds: plain text that may
// end in one reference. A [Resolver] turns it into a [Value] when a request is
// about to leave:
//
//	t, _ := secret.Parse("Bearer env:TOKEN")
//	v, _ := secret.NewResolver(os.LookupEnv).Resolve(ctx, t)
//	req.Header.Set("Authorization", v.Reveal())   // the one place that sees it
//
// What an org's vault holds is sealed by a [Keyring], under the operator's master
// key, before it is stored:
//
//	keys, _ := secret.NewKeyring(masterKey)
//	sealed, _ := keys.Seal("acme", "gh_token", value)   // for the store
//	value, err := keys.Open("acme", "gh_token", sealed) // for a Lookup
//
// No error of this package contains a credential, and no text that could be
// one: a reference that does not parse is described, not quoted.
package secret

// Package secret resolves references to credentials, and keeps credentials out of logs,
// errors and dumps.
//
// A configuration refers to a credential instead of containing it:
//
//	env:OPENAI_API_KEY          an environment variable
//	file:/run/secrets/token     the content of a file, at most 64 KiB
//	secret:gh_token             an entry of the org's vault
//
// A [Text] is the value of a configuration key or a header: plain text that may end in
// one reference. A [Resolver] resolves it to a [Value] just before a request is sent:
//
//	t, _ := secret.Parse("Bearer env:TOKEN")
//	v, _ := secret.NewResolver(os.LookupEnv).Resolve(ctx, t)
//	req.Header.Set("Authorization", v.Reveal())   // the only place where the credential is visible
//
// A [Keyring] encrypts the entries of an org's vault under the operator's master key
// before they are stored:
//
//	keys, _ := secret.NewKeyring(masterKey)
//	sealed, _ := keys.Seal("acme", "gh_token", value)   // for the store
//	value, err := keys.Open("acme", "gh_token", sealed) // for a Lookup
//
// No error of this package contains a credential or a text that may be one. An error
// about an invalid reference describes it and does not quote it.
package secret

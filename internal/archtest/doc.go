// Package archtest keeps the rules of the house that a compiler does not know.
// It has nothing but tests, and each of them fails with the reason in words, so
// that whoever breaks a rule learns why it is one:
//
//	layers_test.go      who may import whom
//	rules_test.go       the rules of a run read no clock and do no I/O
//	journal_test.go     no fact is appended that the rules have not allowed
//	network_test.go     connections are opened in one package
//	comments_test.go    every package and every public name says what it is for;
//	                    comments point to nothing outside the repository
//	globals_test.go     no init functions, no variables that anybody may change
//	builtin_test.go     built-in tools are named by their table alone
//	library_test.go     SQL is in the stores and the SQL tools; the library links no driver and nothing of a gateway
//	width_test.go       lines are at most 140 columns wide, but for a list that shrinks
//	gomod_test.go       go.mod is tidy; the README and CI run the same tests
//	ninefiles_test.go   one request runs the nine files that the documentation names
//	surfaces_test.go    a surface takes no decision from the loop, and every API runs the same one
//
// A rule that turns out to be wrong is changed here, with its reason, in the
// same commit as the code that needs it changed.
package archtest

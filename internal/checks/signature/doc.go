// Package signature makes rules of a table: each row says how a known bottleneck shows in a profile, and its remedy. It
// is the engine, the built-in table signatures.yaml, and what two rules of the runtime leave to its rows. It knows no
// other rule, neither the suite nor the table of causes.
package signature

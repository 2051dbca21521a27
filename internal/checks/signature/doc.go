// Package signature makes rules from a table: each row says how a known bottleneck shows in a profile, and names its
// remedy. The package holds the engine, the built-in table signatures.yaml, and what two rules of the runtime leave
// to its rows. It does not know other rules, the suite or the table of causes.
package signature

// Package e2e tests the program as a person on call uses it: the real binary on real faults, built with internal/lab.
//
// Each test says which finding must be the verdict, with which arithmetic and which offender, and which findings
// would be false accusations. Every recording is also diagnosed from its file, without privileges, and must result in
// the same report.
//
// Two environment variables change a run. PERFDOCTOR_KEEP=DIR keeps the recordings in DIR, to make test cases of
// checks from them (perfdoctor checks case). PERFDOCTOR_E2E_RUNS=N repeats the tests of healthy programs.
package e2e

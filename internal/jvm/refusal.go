package jvm

import "fmt"

// Cause is why something cannot be done to a JVM.
type Cause string

// The causes.
const (
	NotJVM         Cause = "not-a-jvm"
	Gone           Cause = "gone"            // the process ended, or the pid never was one
	Denied         Cause = "denied"          // perfdoctor lacks the rights
	UnsupportedVM  Cause = "unsupported-vm"  // OpenJ9, or a native image
	Starting       Cause = "starting"        // too young to be asked
	Stopped        Cause = "stopped"         // by a signal, a debugger or the freezer
	AttachDisabled Cause = "attach-disabled" // -XX:+DisableAttachMechanism
	NoSignal       Cause = "no-signal"       // -Xrs and no socket, or no handler for SIGQUIT
	LoadDisabled   Cause = "load-disabled"   // -XX:-EnableDynamicAgentLoading
	NoPlace        Cause = "no-place"        // no directory where target and perfdoctor can both have a file
	NoAnswer       Cause = "no-answer"       // the JVM did not answer in time
	Replaced       Cause = "replaced"        // the JVM loaded a file that somebody put in the place of ours
	Failed         Cause = "failed"          // the JVM answered that it could not do it
)

// Refusal says that something was not done, and why. Nothing of the attempt is left in the target.
type Refusal struct {
	Cause  Cause
	Reason string // a sentence without a full stop
	Remedy string // what the user can do; "" if nothing helps
	Code   int    // Failed: what the JVM, or the agent that it loaded, returned
	Err    error  // beneath it, may be nil
}

// Error returns the reason and the remedy.
func (r *Refusal) Error() string {
	if r.Remedy == "" {
		return r.Reason
	}
	return fmt.Sprintf("%s; %s", r.Reason, r.Remedy)
}

// Unwrap returns the error beneath it, such as one of the context.
func (r *Refusal) Unwrap() error { return r.Err }

package hotcode

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestNamedLocks: the innermost function with a name names a lock. Waits for a condition inside of it, or for the
// interpreter's own lock, do not.
func TestNamedLocks(t *testing.T) {
	const (
		ruby = ";libruby.so!rb_vm_exec_[n];libruby.so!rb_mutex_synchronize_[n]"
		rust = ";shop!shop::book_seat_[n];shop!lock_api::mutex::Mutex<R,T>::lock_[n]"
	)
	for line, want := range map[string]string{
		"[a tid=1|sleeping]" + ruby +
			";libruby.so![unknown 0x2 near rb_mutex_lock]_[n];libruby.so!rb_native_cond_wait_[n];" +
			"libc.so.6!pthread_cond_wait_[n]": "rb_mutex_synchronize at rb_mutex_synchronize",
		"[a tid=1|sleeping]" + ruby +
			";libruby.so!rb_vm_exec_[n];libruby.so!rb_mutex_sleep_[n];libruby.so!rb_native_cond_wait_[n]": "",
		"[a tid=1|sleeping];libruby.so!rb_thread_io_blocking_region_[n];libruby.so!rb_native_cond_timedwait_[n]": "",
		"[a tid=1|sleeping]" + rust +
			";shop!parking_lot::raw_mutex::RawMutex::lock_slow_[n];shop!parking_lot_core::parking_lot::park_[n];" +
			"libc.so.6!syscall_[n]": "parking_lot::raw_mutex::RawMutex::lock_slow at shop::book_seat",
		"[a tid=1|sleeping]" + rust + ";libc.so.6!pthread_cond_wait_[n]": "",
	} {
		p, _ := rec(t, map[string]string{"waits": line + " 3 100000000\n"}).Profile(stacks.Waits)
		got := ""
		for _, l := range NamedLocks(p) {
			got += l.Function + " at " + l.At
			if l.Count != 3 || l.Value != 100_000_000 || l.Threads["1"] != "a" {
				t.Errorf("%s\n%d samples, %d ns of %v", line, l.Count, l.Value, l.Threads)
			}
		}
		if got != want {
			t.Errorf("%s\nwaits for %q, want %q", line, got, want)
		}
	}
}

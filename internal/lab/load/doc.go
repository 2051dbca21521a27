// Package load makes requests, and says how long they took and how they failed: the load of scenarios and tests.
//
// A [Plan] says which requests; [Run] makes them with sockets from a [Dialer], so that the sockets can be in another
// network namespace, and returns a [Result]. [Listen] makes a server to talk to, from a [ServerPlan]. Plans are data,
// so that a scenario's file and a child process can hold them.
//
// # Time is counted from when a request was due
//
// A plan with a rate is an open loop: requests become due by the clock, whether or not earlier ones were answered,
// and the latency of each runs from that moment. A server that stops for 300 ms then shows in all requests that
// became due meanwhile. A plan without a rate is a closed loop: a connection's next request waits for its last
// answer, so only one request per connection sees the same stop, and the percentiles hide it (coordinated omission).
// [Result.Unfinished] says how many requests never got an answer. The latencies leave them out and so look too good.
//
// # What the libraries do, and do not
//
// The histograms are from github.com/HdrHistogram/hdrhistogram-go: they are exact to three digits, can be merged, and
// can be exported in the format that HdrHistogram's tools for other languages read. Neither
// github.com/tsenart/vegeta/v12 v12.12.0 nor fortio.org/fortio v1.75.3 can make the requests:
//   - vegeta hands out errors as text (Result.Error in lib/results.go), fortio's HTTP client status codes and its TCP
//     runner totals by text: not errno, and not by second;
//   - vegeta binds every socket to 0.0.0.0:0 (NewAttacker in lib/attack.go, seen with strace), and so takes its port
//     in bind() from one pool for all destinations: the very fault that a scenario is to show or not to show. fortio
//     binds none, and neither sets IP_BIND_ADDRESS_NO_PORT;
//   - with neither can one say which side closes first, nor ask for a reset;
//   - vegeta counts the latency from when a worker takes the request (hit in lib/attack.go), fortio from the call
//     (runOne in periodic/periodic.go, which keeps how late the calls were in a histogram apart): not from when it was
//     due;
//   - vegeta speaks HTTP only; fortio has a TCP echo, but its sockets are made where the process is;
//   - a client made with net/http, as vegeta's is, used three times wrk's CPU time per request on kept connections and
//     twice on short ones (measured on Linux 6.18), this one 1.2 to 1.3 times (BenchmarkAgainstWrk): on a small machine
//     that time is the server's;
//   - what remains is the pacing, the easy part, for seven more modules with vegeta and a dozen with fortio.
package load

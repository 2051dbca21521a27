package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// What clients measured about the target: the clients of a scenario, which know when a request was due. No collector
// measures this; a recording of a production host has none of it. load is the process that made the requests.
var (
	LoadRequests = counter("load_requests_total", q.Events, "the load generator",
		"Requests of a load generator that were answered.", "load")
	LoadErrors = counter("load_errors_total", q.Events, "the load generator",
		"Its requests and connects that failed.", "load")
	LoadDurations = counter("load_request_durations_total", q.Events, "the load generator",
		"Its answered requests by how long they took from when they were due: at most so many seconds, and more than "+
			"the next smaller bound.", "load", "at_most")
	LoadRate = gauge("load_requests_per_second", q.Events, "the load generator's summary",
		"Requests a second that a load generator printed at its end: since its start, and not of the window alone.",
		"load")
	LoadP99 = gauge("load_request_p99_seconds", q.Seconds, "the load generator's summary",
		"99th percentile of the time of a request that it printed at its end: since its start.", "load")
)

package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// Memory, paging and disks of the whole host.
var (
	MemoryTotal     = gauge("memory_total_bytes", q.Bytes, "/proc/meminfo", "MemTotal.")
	MemoryAvailable = gauge("memory_available_bytes", q.Bytes, "/proc/meminfo",
		"MemAvailable: what can be had without swapping (kernel 3.14).")
	SwapTotal = gauge("swap_total_bytes", q.Bytes, "/proc/meminfo", "SwapTotal.")
	SwapFree  = gauge("swap_free_bytes", q.Bytes, "/proc/meminfo", "SwapFree.")

	MinorFaults = counter("page_faults_total", q.Faults, "/proc/vmstat pgfault",
		"All page faults, minor and major, of the host.")
	MajorFaults = counter("major_page_faults_total", q.Faults, "/proc/vmstat pgmajfault",
		"Page faults that needed I/O.")
	SwapIn     = counter("swap_in_pages_total", q.Pages, "/proc/vmstat pswpin", "Pages swapped in.")
	SwapOut    = counter("swap_out_pages_total", q.Pages, "/proc/vmstat pswpout", "Pages swapped out.")
	DirectScan = counter("direct_reclaim_scanned_pages_total", q.Pages, "/proc/vmstat pgscan_direct",
		"Pages scanned by tasks that had to reclaim memory themselves.")
	DirectReclaimed = counter("direct_reclaim_stolen_pages_total", q.Pages, "/proc/vmstat pgsteal_direct",
		"Pages reclaimed by tasks themselves.")
	AllocStalls = counter("alloc_stalls_total", q.Events, "/proc/vmstat allocstall_*",
		"Allocations that entered direct reclaim, summed over zones.")
	CompactStalls = counter("compact_stalls_total", q.Events, "/proc/vmstat compact_stall",
		"Allocations that waited for compaction.")
	THPSplits    = counter("thp_split_pages_total", q.Pages, "/proc/vmstat thp_split_page", "Huge pages split.")
	HostOOMKills = counter("oom_kills_total", q.Events, "/proc/vmstat oom_kill",
		"Processes killed by the OOM killer (kernel 4.13).")

	DiskReads = counter("disk_reads_completed_total", q.Events, "/proc/diskstats",
		"Reads completed per device (whole disks).", "device")
	DiskWrites = counter("disk_writes_completed_total", q.Events, "/proc/diskstats",
		"Writes completed per device.", "device")
	DiskReadBytes  = counter("disk_read_bytes_total", q.Bytes, "/proc/diskstats", "Bytes read per device.", "device")
	DiskWriteBytes = counter("disk_written_bytes_total", q.Bytes, "/proc/diskstats", "Bytes written per device.",
		"device")
	DiskReadSeconds = counter("disk_read_seconds_total", q.Seconds, "/proc/diskstats",
		"Time spent by all reads; over reads completed it is the mean latency.", "device")
	DiskWriteSeconds = counter("disk_write_seconds_total", q.Seconds, "/proc/diskstats", "Time spent by all writes.",
		"device")
	DiskBusySeconds = counter("disk_io_seconds_total", q.Seconds, "/proc/diskstats",
		"Time in which the device had I/O in flight.", "device")
)

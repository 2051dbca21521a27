package proc

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func factCollector() collect.Collector {
	return collect.Collector{
		Name: "facts",
		Doc: "Kernel, CPU model, virtualisation, clock source, frequency governor, uptime and the queues of " +
			"network devices.",
		Overhead: "1-3 ms, once",
		Provides: []metric.Metric{
			metric.HostInfo, metric.CPUsOnline, metric.Clocksource, metric.Governor, metric.Uptime,
			metric.QueueRPS, metric.QueueXPS, metric.DeviceQueues,
		},
		Pace: collect.Once,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				return sampleFacts(env, a)
			}), nil
		},
	}
}

func sampleFacts(env collect.Env, a *recording.Appender) error {
	f := env.Host.Facts()
	a.Info(metric.HostInfo, f.KernelRelease, f.Arch, f.CPUModel, f.Virtualization)
	if f.CPUsOnline > 0 {
		a.Gauge(metric.CPUsOnline, float64(f.CPUsOnline))
	} else {
		a.Missing(metric.CPUsOnline, recording.StatusFailed, "the number of CPUs online could not be read", "")
	}
	if !f.BootTime.IsZero() {
		a.Gauge(metric.Uptime, time.Since(f.BootTime).Truncate(time.Second).Seconds())
	} else {
		a.Missing(metric.Uptime, recording.StatusFailed, "the time of boot could not be read", "")
	}
	sys := env.Host.Sys
	sampleClocksource(sys, a)
	sampleGovernors(sys, a)
	sampleQueues(sys, a)
	return nil
}

func sampleClocksource(sys string, a *recording.Appender) {
	dir := filepath.Join(sys, "devices/system/clocksource/clocksource0")
	current, err := readLine(filepath.Join(dir, "current_clocksource"))
	if err != nil {
		a.Missing(metric.Clocksource, recording.StatusUnsupported, err.Error(), "")
		return
	}
	available, err := readLine(filepath.Join(dir, "available_clocksource"))
	if err != nil {
		available = "unknown"
	}
	a.Info(metric.Clocksource, current, available)
}

func sampleGovernors(sys string, a *recording.Appender) {
	files, err := filepath.Glob(filepath.Join(sys, "devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
	if err != nil || len(files) == 0 {
		a.Missing(metric.Governor, recording.StatusUnsupported,
			"the CPUs have no cpufreq driver here (usual in a virtual machine)",
			"look at the hypervisor's frequency governor")
		return
	}
	a.None(metric.Governor)
	for _, f := range files {
		g, err := readLine(f)
		if err != nil {
			continue // a CPU that went offline between the two reads
		}
		driver, err := readLine(filepath.Join(filepath.Dir(f), "scaling_driver"))
		if err != nil {
			driver = "" // the rule says less then
		}
		cpu := filepath.Base(filepath.Dir(filepath.Dir(f)))
		a.Info(metric.Governor, strings.TrimPrefix(cpu, "cpu"), g, driver)
	}
}

// sampleQueues reads the devices that this sysfs shows: those of the network namespace it was mounted in.
func sampleQueues(sys string, a *recording.Appender) {
	devices, err := os.ReadDir(filepath.Join(sys, "class/net"))
	if err != nil || len(devices) == 0 {
		for _, m := range []metric.Metric{metric.QueueRPS, metric.QueueXPS, metric.DeviceQueues} {
			a.Missing(m, recording.StatusUnsupported, "no network device in "+sys+"/class/net", "")
		}
		return
	}
	a.None(metric.QueueRPS, metric.QueueXPS, metric.DeviceQueues)
	for _, dev := range devices {
		name := dev.Name()
		queues, err := os.ReadDir(filepath.Join(sys, "class/net", name, "queues"))
		if err != nil { // bonding_masters is a file; a device may go meanwhile
			continue
		}
		for _, d := range []struct {
			prefix, direction, file string
			metric                  *metric.Info
		}{{"rx", "receive", "rps_cpus", metric.QueueRPS}, {"tx", "transmit", "xps_cpus", metric.QueueXPS}} {
			count := 0
			for _, q := range queues {
				if !strings.HasPrefix(q.Name(), d.prefix+"-") {
					continue
				}
				count++
				file := filepath.Join(sys, "class/net", name, "queues", q.Name(), d.file)
				if mask, err := readLine(file); err == nil { // ENOENT without CONFIG_XPS, EINVAL on one queue
					a.Info(d.metric, name, q.Name(), cpusOfMask(mask))
				}
			}
			a.Gauge(metric.DeviceQueues, float64(count), name, d.direction)
		}
	}
}

// cpusOfMask turns a mask of hexadecimal words ("00000000,00000003") into a list ("0,1"); no CPU is the empty string.
func cpusOfMask(mask string) string {
	words := strings.Split(mask, ",")
	var cpus []string
	for i := len(words) - 1; i >= 0; i-- {
		w, err := strconv.ParseUint(words[i], 16, 32)
		if err != nil {
			return mask // keep what the kernel wrote rather than guess
		}
		for bit := range 32 {
			if w&(1<<bit) != 0 {
				cpus = append(cpus, strconv.Itoa(32*(len(words)-1-i)+bit))
			}
		}
	}
	return strings.Join(cpus, ",")
}

func readLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	tlsShare = &check.Param{
		Name: "share", Default: 0.1, Unit: quantity.Ratio,
		Why: "a tenth of the process's CPU time is more than most changes of its code bring; a resumed session " +
			"makes none of it",
	}
	tlsRate = &check.Param{
		Name: "rate", Default: 50, Unit: "connections/s",
		Why: "a full handshake costs about 1 ms: 50 a second are a twentieth of a CPU",
	}
	tlsFew = &check.Param{
		Name: "rate-of-dear-ones", Default: 10, Unit: "connections/s",
		Why: "a signature with an RSA key of 4096 bits takes 5 to 10 ms: ten a second are a tenth of a CPU, and " +
			"fewer are not worth a look",
	}
	tlsBusy = &check.Param{
		Name: "busy", Default: 0.25, Unit: quantity.CPUs,
		Why: "below a quarter of a CPU the handshakes hold nothing back: their share is a fact and no warning",
	}
	tlsOwns = &check.Param{
		Name: "owns", Default: 0.3, Unit: quantity.Ratio,
		Why: "a third of the CPU time is hardly ever outside of the function with most of it, the one that serves a " +
			"connection: the handshake is the better name",
	}
)

// fullHandshake matches the functions that only a handshake without resumption calls: those for certificates and
// their keys. It leaves out what a resumed session does too, such as a fresh key exchange.
var fullHandshake = hotcode.ParsePatterns(
	// Go's crypto/tls, both ends, TLS 1.3 and 1.2 (handshake_server_tls13.go, handshake_client_tls13.go,
	// handshake_server.go).
	"crypto/tls.(*serverHandshakeStateTLS13).sendServerCertificate",
	"crypto/tls.(*clientHandshakeStateTLS13).readServerCertificate",
	"crypto/tls.(*serverHandshakeState).doFullHandshake", "crypto/tls.(*clientHandshakeState).doFullHandshake",
	"crypto/tls.(*Conn).verifyServerCertificate",
	// OpenSSL: work with the private key, by functions that libcrypto exports, since much of it keeps no frame
	// pointer.
	"RSA_sign*", "RSA_private_encrypt", "EVP_PKEY_sign", "EVP_DigestSign", "EVP_DigestSignFinal", "ECDSA_sign*",
	"BN_mod_exp_mont*",
	"bn_mul_mont*", "bn_sqr*mont*", "rsaz_*", "X509_verify_cert",
	// The JDK (sun/security/ssl/CertificateVerify.java, CertificateMessage.java; sun/security/rsa/RSACore.java).
	"sun.security.ssl.CertificateVerify*", "sun.security.ssl.CertificateMessage*",
	"sun.security.ssl.*ServerKeyExchange*",
	"sun.security.rsa.RSACore.*", "sun.security.rsa.RSASignature.engineSign",
)

var tlsNoResumption = &check.Check{
	Name:  "tls-no-resumption",
	Stage: check.Connections,
	Doc: `Each connection makes a whole TLS handshake
A full handshake signs with the certificate's key on the server, and verifies the chain on the client: 0.5 to 2 ms of
CPU time with RSA of 2048 bits (measured with nginx: 482 to 535 µs a connection, and 118 to 120 µs when the session was
resumed). A resumed session and a kept connection need none.

The check takes the share of the process's CPU samples in functions that only a full handshake calls: of Go's
crypto/tls, of OpenSSL and of the JDK. It is a warning with at least 50 connections a second and a quarter of a CPU in
use, or with fewer whose handshakes alone take a quarter of a CPU. For a JVM it is a fact beside crypto-handshake,
which names the caller. Where the host's CPUs would be less than 80 % busy without the handshakes, it is the cause of
cpu-saturated. Functions of stripped libraries without frame pointers can be missed, so silence about such a program is
no proof.

Fix: keep connections; let sessions be resumed, which takes both ends: tickets or a session cache on the server,
shared by its instances, and a client that keeps its sessions. Tickets alone are a placebo with a client that throws
them away.
Disproved if openssl s_client -reconnect shows "Reused", or few connections are opened.`,
	URL:   "https://www.rfc-editor.org/rfc/rfc8446#section-2.2",
	Needs: []metric.Metric{metric.TCPActiveOpens, metric.TCPPassiveOpens},
	Uses: []metric.Metric{
		metric.CPUProfileSamples, metric.HostCPUProfileSamples, metric.ProcessCPU, metric.TargetInfo, metric.CPUSeconds,
		metric.CPUsOnline,
	},
	Params: []*check.Param{tlsShare, tlsRate, tlsFew, tlsBusy, tlsOwns, evidence.ParamCPUTaken},
	Facts:  []check.Fact{evidence.FillsCPUs, evidence.OwnsCPU},
	Beyond: "a handshake of its own, and the logs of clients",
	Run:    runTLSNoResumption,
}

func runTLSNoResumption(p *check.Pass) error {
	active, err := evidence.NetRise(p, metric.TCPActiveOpens, "connections opened")
	if err != nil {
		return err
	}
	passive, err := evidence.NetRise(p, metric.TCPPassiveOpens, "connections accepted")
	if err != nil {
		return err
	}
	most := active
	if passive.Rate().Above(active.Rate()) {
		most = passive
	}
	p.Read(most.Rate())
	if most.Rate().Below(p.Param(tlsFew)) {
		return nil
	}
	c, ok := hotcode.CodeOf(p.Recording)
	if !ok || c.Profile.Total().Count < evidence.EnoughKernel || c.Window <= 0 {
		return check.NotAssessed("run perfdoctor as root where BPF programs may run, or longer",
			"the kernel does not see handshakes, and there is no CPU profile of the target with %d samples",
			evidence.EnoughKernel)
	}
	assessHandshakes(p, c, most)
	return nil
}

func assessHandshakes(p *check.Pass, c *hotcode.CPU, opened evidence.Growth) {
	set, _ := hotcode.Frames(c.Profile, fullHandshake)
	hit := c.Containing(set)
	all := c.Profile.Total()
	share := evidence.SampleShare("full TLS handshakes", hit.Total().Count, all.Count, "process's CPU")
	p.Read(share)
	if share.Below(p.Param(tlsShare)) {
		return
	}
	cpus := quantity.Of("CPU time", c.Total(), quantity.Seconds).Per(quantity.Of("window", c.Window, quantity.Seconds)).
		As(quantity.CPUs).Named("CPUs in use")
	spent := quantity.Of("CPU time in full handshakes", share.Number()*c.Total()/c.Window, quantity.CPUs)
	if opened.Rate().Below(p.Param(tlsRate)) && spent.Below(p.Param(tlsBusy)) {
		return
	}
	cost := spent.Per(opened.Rate()).As(quantity.Seconds).Named("CPU time of the handshake per connection")
	f := check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   check.Info,
		Weight:     share.Number(),
		Confidence: check.High,
		Summary: fmt.Sprintf("full TLS handshakes take %s of the process's CPU time, %s a connection at %s",
			share.Text(), cost.Text(),
			opened.Rate().Text()),
		Evidence: []quantity.Value{share, opened.Rate(), cost, cpus},
		Notes:    []string{"of it: " + ownFunctions(c, set)},
		Remedies: []check.Remedy{
			{
				Action: "Keep connections open and use them again.",
				Risk: "a pooled connection that the peer closed meanwhile fails its next request: set the pool's " +
					"idle time " +
					"below the peer's",
				Effect: "one handshake for all requests of a connection",
			},
			{
				Action: "Let sessions be resumed, on both ends: tickets or a session cache on the server, and a " +
					"client " +
					"that keeps its sessions.",
				Command: "openssl s_client -connect HOST:PORT -reconnect </dev/null | grep -c Reused",
				Risk:    "ticket keys must be shared by the server's instances and changed every day",
				Effect:  fmt.Sprintf("at most %s of CPU time less a connection", cost.Text()),
			},
		},
		Placebos: []string{"tickets on the server alone, with clients that throw them away"},
		Disproof: "openssl s_client -reconnect says Reused, and the clients log resumed sessions.",
	}
	// crypto-handshake judges what a runtime's profiler measured: it names the caller.
	if _, managed := p.Profile(stacks.CPU); !managed && cpus.AtLeast(p.Param(tlsBusy)) {
		f.Severity = check.Warning
	}
	if share.AtLeast(p.Param(tlsOwns)) {
		f.Facts = append(f.Facts, evidence.OwnsCPU)
	}
	handshakesSaturate(p, spent, &f)
	if low, _ := hotcode.Interval(hit.Total().Count, all.Count); low < p.Param(tlsShare).Number() {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, fmt.Sprintf("by chance alone it could be below %s", p.Param(tlsShare).Text()))
	}
	p.Report(f)
}

// ownFunctions names the handshake's functions that have most of its time.
func ownFunctions(c *hotcode.CPU, set []bool) string {
	counts, all := map[string]int64{}, c.Profile.Total().Count
	for _, s := range c.Samples {
		if at := s.Outermost(set); at >= 0 {
			counts[c.Frames[s.Stack[at]].Name] += s.Count
		}
	}
	return evidence.RankedShares(counts, all, evidence.NamedFunctions)
}

// handshakesSaturate marks the queue for the CPUs as a consequence if there would be none without the handshakes.
func handshakesSaturate(p *check.Pass, spent quantity.Value, f *check.Finding) {
	busy, part, ok := evidence.OfHost(p, spent)
	if !ok {
		return
	}
	rest := busy.Minus(part).Named("CPUs in use without the handshakes")
	p.Read(rest)
	if rest.Below(p.Param(evidence.ParamCPUTaken)) && busy.AtLeast(p.Param(evidence.ParamCPUTaken)) {
		f.Evidence = append(f.Evidence, rest)
		f.Facts = append(f.Facts, evidence.FillsCPUs)
	}
}

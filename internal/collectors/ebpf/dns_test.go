package ebpf

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// question is one about "db.a." (RFC 1035, 4.1).
func question(id, kind uint16) []byte {
	q := append([]byte{2: 1, 5: 1, 11: 0}, "\x02db\x01a\x00"...)
	binary.BigEndian.PutUint16(q, id)
	q = binary.BigEndian.AppendUint16(q, kind)
	return binary.BigEndian.AppendUint16(q, 1) // the Internet
}

// answerQuestions answers with the code in the last digit of the question's number. 9 is no answer.
func answerQuestions(server *net.UDPConn, wait time.Duration) {
	buffer := make([]byte, 512)
	for {
		n, from, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		code := buffer[1] % 10
		if n < len(question(0, 1)) || code == 9 {
			continue
		}
		time.Sleep(wait)
		buffer[2], buffer[3] = 0x81, 0x80|code
		_, _ = server.WriteToUDPAddrPort(buffer[:n], from)
	}
}

// TestDNS: each question is counted once, with the code of its answer and the time until then, even if no answer comes.
// Packets that are not questions are not counted.
func TestDNS(t *testing.T) {
	const waits = 3 * time.Millisecond
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
			check(t, err)
			defer server.Close()
			go answerQuestions(server, waits)
			client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
			check(t, err)
			defer client.Close()
			check(t, client.SetDeadline(time.Now().Add(time.Minute)))
			o := openNamed(t, "bpf-dns", targetOf(t, os.Getpid()))
			buffer := make([]byte, 512)
			for i := range 23 {
				id := uint16(10 * (i + 1)) // NOERROR
				kind := uint16(1)          // A
				if i%5 == 4 {
					id += 2 // SERVFAIL
					kind = 28
				} else if i > 19 {
					kind = 65 // HTTPS
				}
				_, err = client.Write(question(id, kind))
				check(t, err)
				_, err = client.Read(buffer)
				check(t, err)
			}
			_, err = client.Write([]byte("requests.ok:1|c\n"))
			check(t, err)
			for range 2 { // asked again
				_, err = client.Write(question(9, 1))
				check(t, err)
			}
			const open = 100 * time.Millisecond
			time.Sleep(open)
			rec := o.done()
			of := []string{"endpoint", server.LocalAddr().String()}
			want(t, rec, 24, metric.DNSQueries, of...)
			want(t, rec, 16, metric.DNSAnswers, append(of, "type", "A", "code", "NOERROR")...)
			want(t, rec, 3, metric.DNSAnswers, append(of, "type", "other", "code", "NOERROR")...)
			want(t, rec, 4, metric.DNSAnswers, append(of, "type", "AAAA", "code", "SERVFAIL")...)
			want(t, rec, 23, metric.DNSAnswers, of...)
			least := (23*waits + open).Seconds()
			if got := total(rec, metric.DNSSeconds, of...); got < least || got > 3*least {
				t.Errorf("questions were open for %v s, want %v s or a little more", got, least)
			}
		})
	}
}

// TestDNSOfOthers: questions of other processes are not the target's.
func TestDNSOfOthers(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	defer server.Close()
	go answerQuestions(server, 0)
	other := exec.Command("sleep", "60")
	check(t, other.Start())
	defer other.Wait()
	defer other.Process.Kill()
	o := openNamed(t, "bpf-dns", targetOf(t, other.Process.Pid))
	client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	check(t, err)
	defer client.Close()
	check(t, client.SetDeadline(time.Now().Add(time.Minute)))
	_, err = client.Write(question(10, 1))
	check(t, err)
	_, err = client.Read(make([]byte, 512))
	check(t, err)
	want(t, o.done(), 0, metric.DNSQueries, "endpoint", server.LocalAddr().String())
}

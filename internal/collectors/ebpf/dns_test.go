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

// question is one for the address of "a." (RFC 1035, 4.1).
func question(id uint16) []byte {
	q := []byte{2: 1, 5: 1, 11: 0, 12: 1, 13: 'a', 14: 0, 15: 0, 16: 1, 17: 0, 18: 1}
	binary.BigEndian.PutUint16(q, id)
	return q
}

// answerQuestions answers with the code that the number of a question has in its last digit; 9 is no answer.
func answerQuestions(server *net.UDPConn, wait time.Duration) {
	buffer := make([]byte, 512)
	for {
		n, from, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		code := buffer[1] % 10
		if n < len(question(0)) || code == 9 {
			continue
		}
		time.Sleep(wait)
		buffer[2], buffer[3] = 0x81, 0x80|code
		_, _ = server.WriteToUDPAddrPort(buffer[:n], from)
	}
}

// TestDNS: each question is counted once, with the code of its answer and the time until then, also where none comes;
// what is no question is not.
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
				if i%5 == 4 {
					id += 2 // SERVFAIL
				}
				_, err = client.Write(question(id))
				check(t, err)
				_, err = client.Read(buffer)
				check(t, err)
			}
			_, err = client.Write([]byte("requests.ok:1|c\n"))
			check(t, err)
			for range 2 { // asked again
				_, err = client.Write(question(9))
				check(t, err)
			}
			const open = 100 * time.Millisecond
			time.Sleep(open)
			rec := o.done()
			of := []string{"endpoint", server.LocalAddr().String()}
			want(t, rec, 24, metric.DNSQueries, of...)
			want(t, rec, 19, metric.DNSAnswers, append(of, "code", "NOERROR")...)
			want(t, rec, 4, metric.DNSAnswers, append(of, "code", "SERVFAIL")...)
			want(t, rec, 23, metric.DNSAnswers, of...)
			least := (23*waits + open).Seconds()
			if got := total(rec, metric.DNSSeconds, of...); got < least || got > 3*least {
				t.Errorf("questions were open for %v s, want %v s or a little more", got, least)
			}
		})
	}
}

// TestDNSOfOthers: what another process asks is nobody's of the target.
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
	_, err = client.Write(question(10))
	check(t, err)
	_, err = client.Read(make([]byte, 512))
	check(t, err)
	want(t, o.done(), 0, metric.DNSQueries, "endpoint", server.LocalAddr().String())
}

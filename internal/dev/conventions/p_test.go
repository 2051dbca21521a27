package conventions
import "testing"
import "time"
import "os"
import "strings"
func TestLoadP(t *testing.T) {
	b := time.Now()
	p := loadPaths(t, "../../..", module, "./cmd/perfdoctor")
	t.Log(len(p.graph.Nodes), len(p.stores), time.Since(b))
	l := p.all()
	t.Log(time.Since(b))
	os.WriteFile("/tmp/paths.txt", []byte(strings.Join(l,"\n")), 0o600)
}
